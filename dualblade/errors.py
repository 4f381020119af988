"""Errors: every message names the cause, the value that was met, and the cure."""


class DualBladeError(Exception):
    """Root of everything this package raises on purpose; its text is one sentence meant for the user."""


class ConfigurationError(DualBladeError):
    """A value in the configuration cannot be used."""


class BudgetError(DualBladeError):
    """The memory that a run needs is not there."""


class StorageError(DualBladeError):
    """A device, a file system or a transfer did not do what was asked of it."""


class IntegrityError(DualBladeError):
    """Data read back is not the data that was written."""
