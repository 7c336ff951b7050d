"""The exceptions of zccl."""


class ZcclError(Exception):
    """Base of the errors that zccl defines itself."""


class StreamError(ZcclError, ValueError):
    """Bytes that are not an undamaged zccl stream."""


class TransportError(ZcclError, RuntimeError):
    """A communicator or transport that cannot be used."""
