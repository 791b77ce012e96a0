"""Translates arguments in the library's error texts to flags of the command line."""

from __future__ import annotations

#: Phrases in error texts of the library, and their form for the command line.
_WORDS = {
    "Options(plain_password=True)": "--plain-password",
    "Options(insecure_tls=True)": "--insecure-tls",
    "token= or RSMQ_TOKEN": "--token-file or RSMQ_TOKEN",
    "open the client with ns=": "give --ns ",
    "such as ns=": "such as --ns ",
    "pass peer=": "give --peer",
    "unsubscribe it with discard=True": "unsubscribe it with --discard",
    "create it with create_queue()": "create it with: rsmqctl queue create",
    "at least one of vt, delay, maxsize": "at least one of --vt, --delay, --maxsize",
    # Without a flag: left out.
    " (Options(nested_ns=True) allows a colon)": "",
    "Options(allow_eviction=True)": "another server",
    "; pass exist_ok=True to accept it": "",
}


def in_flags(sentence: str) -> str:
    """Return *sentence* with flags instead of Python arguments."""
    for python, flag in _WORDS.items():
        sentence = sentence.replace(python, flag)
    return sentence
