"""A sink and a source whose task fails once. Spark's processes import this module by its name."""

from pathlib import Path

from aiorsmq_ng.spark import RSMQDataSource
from aiorsmq_ng.spark.options import StreamReadOptions, WriteOptions, parse
from aiorsmq_ng.spark.stream_reader import ClaimReader
from aiorsmq_ng.spark.writers import BatchSink


class StumblingSink(BatchSink):
    """Fails once, when part of a partition is sent."""

    def write(self, iterator):
        def stumbling():
            for batch in iterator:
                for at in range(0, batch.num_rows, 100):
                    if batch.column("body")[at].as_py() == "2000" and not self.flag.exists():
                        self.flag.touch()
                        raise RuntimeError("stumbled")
                    yield batch.slice(at, 100)

        return super().write(stumbling())


class StumblingReader(ClaimReader):
    """Fails once, when a task has read its first page."""

    def read(self, partition):
        for batch in super().read(partition):
            if not self.flag.exists():
                self.flag.touch()
                raise RuntimeError("stumbled")
            yield batch


class StumblingSource(RSMQDataSource):
    """The source with that sink and that reader."""

    def __init__(self, options):
        given = dict(options)
        self.flag = Path(given.pop("flag"))
        super().__init__(given)

    @classmethod
    def name(cls):
        return "stumbling"

    def writer(self, schema, overwrite):
        return self._flagged(StumblingSink(parse(WriteOptions, self.options), schema, overwrite))

    def streamReader(self, schema):
        return self._flagged(StumblingReader(parse(StreamReadOptions, self.options), schema))

    def _flagged(self, made):
        made.flag = self.flag
        return made
