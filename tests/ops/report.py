"""What the doctor says: the report of one run, by name."""

from collections.abc import Mapping
from datetime import timedelta

from bot.ops import doctor
from bot.ops.finding import Finding
from bot.timings import Timings
from sandbox.http import free_port
from tests.world import World


class Report:
    """The findings of one run of the doctor."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def __getitem__(self, name: str) -> Finding:
        """Return the only finding of a name."""
        [found] = self.all(name)
        return found

    def all(self, name: str) -> list[Finding]:
        """Return the findings of a name."""
        return [each for each in self.findings if each.name == name]

    def not_ok(self) -> list[str]:
        """Return the names of what is wrong or works only in part."""
        return [each.name for each in self.findings if each.state in {"warning", "error"}]


async def report_of(
    environ: Mapping[str, str],
    *,
    in_file: Mapping[str, str] | None = None,
    call_timeout: float = 20,
) -> Report:
    """Run the doctor with these settings, those ``in_file`` as in ``.env``."""
    in_file = in_file or {}
    timings = Timings(call_timeout=timedelta(seconds=call_timeout))
    settings = {**in_file, **environ}
    found = doctor.examine(settings, in_file=in_file, timings=timings)
    return Report([each async for each in found])


async def report(world: World, **changed: str) -> Report:
    """Run the doctor with the settings of a world, some of them changed."""
    port = world.bot.port if hasattr(world, "bot") else free_port()
    return await report_of(world.environment(str(port)) | changed)
