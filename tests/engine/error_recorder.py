"""Records what the bot logs with a traceback."""

import logging


class ErrorRecorder(logging.Handler):
    """Records logged exceptions, except the sandbox's own."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not record.name.startswith("sandbox"):
            self._violations.append(self._formatter.format(record))
