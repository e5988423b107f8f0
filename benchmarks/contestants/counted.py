"""The bot as ``ours`` runs it, whose statements and works are counted until it ends.

SIGUSR1 makes it forget what it has counted. The first argument is the file that gets the counts as
JSON; the others are those of ``ours``.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

from benchmarks.contestants import ours
from tests.statements import recording


def main() -> None:
    """Run the bot until the process is asked to end, and write what it asked of the database."""
    file = Path(sys.argv.pop(1))
    with recording() as recorder:
        signal.signal(signal.SIGUSR1, lambda *_: recorder.take())
        asyncio.run(ours.main())
    works = recorder.take().works
    statements = sum(len(work.statements) for work in works)
    file.write_text(json.dumps({"statements": statements, "works": len(works)}))


if __name__ == "__main__":
    main()
