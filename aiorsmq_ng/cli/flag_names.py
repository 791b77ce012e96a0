"""The library's sentences in the words of the command line."""

from __future__ import annotations

#: What a sentence of the library says to a program, and what it says here.
_WORDS = {
    "Options(plain_password=True)": "--plain-password",
    "Options(insecure_tls=True)": "--insecure-tls",
    "token= or RSMQ_TOKEN": "--token-file or RSMQ_TOKEN",
    "open the client with ns=": "give --ns ",
    "such as ns=": "such as --ns ",
    "unsubscribe it with discard=True": "unsubscribe it with --discard",
    "create it with create_queue()": "create it with: rsmqctl queue create",
    "at least one of vt, delay, maxsize": "at least one of --vt, --delay, --maxsize",
    # There is no flag for these.
    " (Options(nested_ns=True) allows a colon)": "",
    "Options(allow_eviction=True)": "another server",
    "; pass exist_ok=True to accept it": "",
}


def in_flags(sentence: str) -> str:
    """Return *sentence* with flags where the library speaks of arguments in Python."""
    for python, flag in _WORDS.items():
        sentence = sentence.replace(python, flag)
    return sentence
