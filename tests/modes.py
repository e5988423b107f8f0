"""The two ways in which Slack's requests reach the bot, for tests that run in both."""

from typing import Final

import pytest

HTTP: Final = "HTTP"
SOCKET_MODE: Final = "Socket Mode"
#: Runs a test of ``world`` or ``quiet_world`` in both modes.
in_both_modes: Final = pytest.mark.parametrize("quiet_world", [HTTP, SOCKET_MODE], indirect=True)
