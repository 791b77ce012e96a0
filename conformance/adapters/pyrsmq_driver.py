"""A driver for PyRSMQ: one JSON object per line in, one per line out."""

import json
import os
import sys
from importlib.metadata import version

from redis import Redis
from rsmq import RedisSMQ
from rsmq.cmd.exceptions import NoMessageInQueue, RedisSMQException

#: PyRSMQ has classes where RSMQ has code words.
CODES = {
    "QueueDoesNotExist": "queueNotFound",
    "QueueAlreadyExists": "queueExists",
    "InvalidParameterValue": "invalidValue",
}
#: What stands for its exception about a message that is not there.
NOTHING = {"receiveMessage": None, "popMessage": None, "changeMessageVisibility": False}


def call(client, verb, args):
    """Return the result of a verb; its arguments are passed as the package's README does."""
    try:
        result = getattr(client, verb)(**args).execute()
    except NoMessageInQueue:
        return NOTHING[verb]
    if verb == "listQueues":
        return list(result)
    if isinstance(result, dict) and "rc" in result:
        # "ts" is the time of the first receive.
        return {"fr": result["ts"], "sent": None, **result}
    return result


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # the package prints some of its remarks
    connection = Redis.from_url(os.environ["RSMQ_CONFORMANCE_URL"], decode_responses=True)
    clients = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["verb"] == "hello":
                said = {"name": "PyRSMQ", "version": version("PyRSMQ"), "language": "Python"}
                reply = {"ok": said}
            else:
                ns = request["ns"]
                clients[ns] = clients.get(ns) or RedisSMQ(client=connection, ns=ns)
                reply = {"ok": call(clients[ns], request["verb"], request["args"])}
        except RedisSMQException as error:
            name = type(error).__name__
            reply = {"error": CODES.get(name, name), "message": str(error)}
        except Exception as error:
            reply = {"error": type(error).__name__, "message": str(error)}
        answers.write(json.dumps({"id": request["id"], **reply}) + "\n")
        answers.flush()


main()
