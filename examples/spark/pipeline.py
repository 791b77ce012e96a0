"""Run a ready job under spark-submit.

    spark-submit --master spark://host:7077 pipeline.py archive -n jobs --to hdfs:///lake/messages

takes the same arguments as ``rsmqctl pipeline``. The package must be installed for the Python of
the driver and of the executors.
"""

import sys

from aiorsmq_ng.cli import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
