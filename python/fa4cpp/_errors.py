"""What fa4cpp raises. The text is always the library's line: the argument, its value, what is accepted."""


import re
import reprlib


def shortened(text):
    """A text in an error, of at most 100 characters."""
    return text if len(text) <= 100 else f"{text[:97]}..."


def shown(value):
    """A value in an error, shortened; numbers, words and lists of few without reprlib, which torch.compile does not follow."""
    if type(value) in (bool, float) or (type(value) is int and -2**63 <= value < 2**63) or (type(value) is str and len(value) < 25):
        return f"{value!r}"
    if type(value) is list and len(value) < 7:
        return shortened(f"[{', '.join([shown(each) for each in value])}]")
    return shortened(reprlib.repr(value))


class Error(RuntimeError):
    """A call failed. `status` is the library's number for the kind of failure, `name` its name."""

    status = 9
    name = "INTERNAL"

    def __str__(self):  # not __init__, which torch.compile does not follow
        text = super().__str__()
        return " ".join(text.split()) if len(text.splitlines()) > 1 else text  # arrays show themselves in several lines


class InvalidArgumentError(Error, ValueError):
    """A value that is never accepted."""

    status = 1
    name = "INVALID_ARGUMENT"


class NotSupportedError(Error, NotImplementedError):
    """Valid, but this device or this version does not do it."""

    status = 2
    name = "NOT_SUPPORTED"


def of_status(status, name, text):
    """The exception of a status of the C ABI."""
    if status == InvalidArgumentError.status:
        return InvalidArgumentError(text)
    if status == NotSupportedError.status:
        return NotSupportedError(text)
    if status == 3:
        return MemoryError(text)
    error = Error(text)
    error.status, error.name = status, name
    return error


def renamed(names):
    """A function that puts the caller's names of arguments into an error; `names` maps ours to them."""
    ours = re.compile(rf"(?<!['\"])\b({'|'.join(names)})\b(?!['\"])")

    def rename(error):
        error.args = (ours.sub(lambda found: names[found[0]], str(error)),)

    return rename
