"""The guided set-up: questions, checks, and the ``.env`` they lead to."""
