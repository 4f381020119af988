"""Errors: every message names the cause, the value found, and the cure."""


class DualBladeError(Exception):
    """Base class of all errors of this package; the text is one sentence for the user."""


class ConfigurationError(DualBladeError):
    """A value in the configuration cannot be used."""


class BudgetError(DualBladeError):
    """A run does not get the memory that it needs."""


class StorageError(DualBladeError):
    """A device, a file system or a transfer failed."""


class IntegrityError(DualBladeError):
    """Data read back differs from the data that was written."""
