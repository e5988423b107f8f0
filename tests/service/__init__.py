"""The video service's client, its failures, and what is not called."""
