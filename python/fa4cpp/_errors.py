"""What fa4cpp raises. The text is always the library's line: the argument, its value, what is accepted."""


class Error(RuntimeError):
    """A call failed. `status` is the library's number for the kind of failure, `name` its name."""

    status = 9
    name = "INTERNAL"

    def __init__(self, text, status=None, name=None):
        super().__init__(" ".join(text.split()) if len(text.splitlines()) > 1 else text)  # arrays show themselves in several lines
        if status is not None:
            self.status, self.name = status, name


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
    return Error(text, status, name)
