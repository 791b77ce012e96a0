"""Operations of the Spark source and sink: claims for streams, bulk sends and snapshots."""

#: Bytes of bodies that one call reads, unless its caller chooses another number; more would stall
#: other clients. A call ends with the message that reaches the number.
READ_BYTES = 4 * 2**20
#: The same for calls that write bodies, which cost the server some four times as much.
WRITE_BYTES = READ_BYTES // 4
