"""Operations of the Spark source and sink: claims for streams, bulk sends and snapshots."""
