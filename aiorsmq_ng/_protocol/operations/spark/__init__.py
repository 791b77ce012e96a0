"""Operations of the Spark source and sink: claims for streams, bulk sends and snapshots."""

#: Bytes of bodies that one call reads or writes, unless its caller chooses another number; more
#: would stall other clients. A call ends with the message that reaches the number.
READ_BYTES = WRITE_BYTES = 2**20
