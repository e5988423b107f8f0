"""The two ways in which Slack's requests reach the bot, for tests that run in both."""

from typing import Final

import pytest

HTTP: Final = "HTTP"
SOCKET_MODE: Final = "Socket Mode"
#: Runs a test, or those of a file, in both modes; what starts no bot runs once.
in_both_modes: Final = pytest.mark.in_both_modes
