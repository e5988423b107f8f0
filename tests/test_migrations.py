"""Migrations: what is released is never edited, and a database that has other tables is refused."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from bot import doctor
from bot.store import DatabaseError
from bot.store.migrate import SQLITE_MIGRATIONS, checksum
from bot.store.postgres_migrations import POSTGRES_MIGRATIONS
from bot.store.sqlite import migrate
from tests.world import World

CHECKSUMS: Final[dict[str, str]] = {
    "0001_jobs": ("71e2e7f127e35cfc5ca31d1dffb4719b881c6f9222fdf87ee2ea42a843aa28c1"),
    "0002_replicas": ("69764f7e34e089d8c85d9387e8077af790666ea265fd171bf23bc05cf7fd200e"),
    "0003_refusals": ("b35babce002be5ce27da574ccf5ec36bb4d3ffd41d3738dd3f30cb9a27bba130"),
    "0004_waiting_replies": ("6113b5bc3d452bb3f16b68689a3fe60c52930bcbcc87dbc47aa90a818decd178"),
    "0005_unread_index": ("91d73a0c186729673fcdab93663c81f1436556033d05499446849f8118d98a91"),
    "0006_standard_names": ("deefbe22450e17a1e07765acfeee3f5938af81596d867b5ecaef819f8cd35376"),
    "0007_deletion": ("e790bf0ec6dff732c5b00f5ccf2de9ed9d53bae14fad01a7aeb39b3543ec2372"),
    "0008_limits_and_turns": ("db73ae8ce34419d058acad0c1900fd29c2c37bdd77a67952cdeef13f84a9bb77"),
    "0009_installation": ("8d1810cdf35596adc472dbdee131ec77dcf94ecae088ed8fd5a6469cbee23f7b"),
    "0010_held": ("c0f5ff8b0df944bffa237f31d90578171d3d4e899dda63fca71c181df553d88c"),
    "0011_waits": ("75321861e10d3608ed273351d1837496d63c829251192848544422b97db9bfa8"),
    "0012_set_aside": ("3da07395ad1fa892c8453ff01739905f8201c074ee4beadc58a320da4dc38200"),
    "0013_compaction": ("bd067a2c11a911539be1ffd7974e2be998bad5d9e07e35ff52d7c51d0b98bb6f"),
    "0014_missing": ("878729c1b28f44a49ad48769ed51d9189e02d62ba25731840f6865570442342b"),
    "0015_ids_in_any_case": ("6372bfe4c3eba41fb1f7a8ef07a1183b1d2c5c019548d490a1544a722d6be690"),
    "0016_questions": ("f06f8b306bf2257448dabce7e2923d4e2bc772511b661dcf36908d818740573e"),
    "0017_answered_messages": ("e281eaa0d69ab1977daa69753f547724a7fe3e0d786323fb403c612937efbd7e"),
    "0018_retries": ("207d5772f732637c95023f76241c9b492532874e02928fdbc57b595682ab3fc7"),
    "0019_homes": ("cf952e2b5aeeed9a68dfed832a3196e74d86cca44c5a4343b6a3b17f811faf6d"),
    "0020_uninstalled": ("08e7b13e6650cb88e3652b4317eab5f4b4d8153df19a255ef02cb64cbbfec9a7"),
    "0021_ids_of_attempts": ("32d18b65b70dea4a3739b14717a10d8f36e0365ad067362fec09cfc4a50e2548"),
    "0022_due_posts": ("495a7bf16c132a3ad7202836a4c24149e65e3991472e141019e14ce227b43057"),
    "0023_callback_probe": ("0d25172d4b35cfd8c8b39a8a7dbb74737b4a5b52b35328e65cec23ef534f9eea"),
    "0024_files": ("b3e4c7a5bf6584a477da80957635e9f5a4ffcf1601aa5e3acd9094491b1d8406"),
    "0025_drift": ("14799a6db9499810d99d2aa1376c177cfd9e9444c8c1aea703c74ef602e63ee8"),
    "0026_copies": ("ef59044c95bda4d9f985bac3e3abdd0853237f654fe1472b58b90c01188cc9aa"),
    "0027_durations": ("fdca03f37aed66513ccfa89a4a1f43e71681fe8d379dbbf8389fba018d5624bc"),
    "0028_fingerprints": ("bfd8a7313cbceb936b36ec83a1077517e373710a10235b8221011a7f4bd2c567"),
    "0029_shares": ("ebec11a44449daf6e99cc9340be306824c6f1deeba015ed4338774ab071a3cca"),
    "0030_limit_changes": ("98f4d30b1e12cd2405e5659f4f23b7f941bfc0d7537d98568f7a8efccb9fd141"),
    "0031_audit": ("86efc30bd87f08d892527bb1d849c948209ed8e6f03dcbdd3e42b558c826ba46"),
    "0032_approvals": ("9195fab195234db8df6bbc96f1d5928d05ac93d2c5c0e289b37d0469d631155a"),
    "0033_offers": ("0d1237bd9894bf51b3f01401eacc39d2b01b0cd9fe0dda3b2a8400eef647c486"),
    "0034_spending": ("8d4de0a8dbefaa7f92329ae303596a8e33034cec6674e515083c50b7fc36d0f9"),
    "0035_listed": ("6d872f3b2c2a3ba8d738f142a2b2ea519d5b7464281bcf43ee4a50a7d14baee4"),
    "0036_changes_in_audit": ("fd78378a980d052964f9bad4d13b78434d0b6721332663410eab27249beb750f"),
}
"""Of each migration. Databases out there have them: add a line for a new one, change none."""

POSTGRES_CHECKSUMS: Final[dict[str, str]] = {
    "0001_jobs": ("99b56632ba81a43d5182482f12e90cf418dda65df7308a495ab29a2678a32e50"),
    "0002_replicas": ("69764f7e34e089d8c85d9387e8077af790666ea265fd171bf23bc05cf7fd200e"),
    "0003_refusals": ("b35babce002be5ce27da574ccf5ec36bb4d3ffd41d3738dd3f30cb9a27bba130"),
    "0004_waiting_replies": ("6113b5bc3d452bb3f16b68689a3fe60c52930bcbcc87dbc47aa90a818decd178"),
    "0005_unread_index": ("91d73a0c186729673fcdab93663c81f1436556033d05499446849f8118d98a91"),
    "0006_standard_names": ("deefbe22450e17a1e07765acfeee3f5938af81596d867b5ecaef819f8cd35376"),
    "0007_deletion": ("e790bf0ec6dff732c5b00f5ccf2de9ed9d53bae14fad01a7aeb39b3543ec2372"),
    "0008_limits_and_turns": ("db73ae8ce34419d058acad0c1900fd29c2c37bdd77a67952cdeef13f84a9bb77"),
    "0009_installation": ("8d1810cdf35596adc472dbdee131ec77dcf94ecae088ed8fd5a6469cbee23f7b"),
    "0010_held": ("c0f5ff8b0df944bffa237f31d90578171d3d4e899dda63fca71c181df553d88c"),
    "0011_waits": ("75321861e10d3608ed273351d1837496d63c829251192848544422b97db9bfa8"),
    "0012_set_aside": ("3da07395ad1fa892c8453ff01739905f8201c074ee4beadc58a320da4dc38200"),
    "0013_compaction": ("bd067a2c11a911539be1ffd7974e2be998bad5d9e07e35ff52d7c51d0b98bb6f"),
    "0014_missing": ("878729c1b28f44a49ad48769ed51d9189e02d62ba25731840f6865570442342b"),
    "0015_ids_in_any_case": ("6372bfe4c3eba41fb1f7a8ef07a1183b1d2c5c019548d490a1544a722d6be690"),
    "0016_questions": ("adc4d86c49632960b4c76b40bc388fc9368deddc956552fa048c56bb0f77b09a"),
    "0017_answered_messages": ("e281eaa0d69ab1977daa69753f547724a7fe3e0d786323fb403c612937efbd7e"),
    "0018_retries": ("207d5772f732637c95023f76241c9b492532874e02928fdbc57b595682ab3fc7"),
    "0019_homes": ("cf952e2b5aeeed9a68dfed832a3196e74d86cca44c5a4343b6a3b17f811faf6d"),
    "0020_uninstalled": ("08e7b13e6650cb88e3652b4317eab5f4b4d8153df19a255ef02cb64cbbfec9a7"),
    "0021_ids_of_attempts": ("abac516e07425207b96072a50cc1bfe2337a40f3b7465c6f624c950e204afd11"),
    "0022_due_posts": ("495a7bf16c132a3ad7202836a4c24149e65e3991472e141019e14ce227b43057"),
    "0023_callback_probe": ("84a8081b909dedf7a27b24d06a8ccfcec42203102dfdf53d95b092d87a3b8820"),
    "0024_files": ("b3e4c7a5bf6584a477da80957635e9f5a4ffcf1601aa5e3acd9094491b1d8406"),
    "0025_drift": ("14799a6db9499810d99d2aa1376c177cfd9e9444c8c1aea703c74ef602e63ee8"),
    "0026_copies": ("ef59044c95bda4d9f985bac3e3abdd0853237f654fe1472b58b90c01188cc9aa"),
    "0027_durations": ("fdca03f37aed66513ccfa89a4a1f43e71681fe8d379dbbf8389fba018d5624bc"),
    "0028_fingerprints": ("bfd8a7313cbceb936b36ec83a1077517e373710a10235b8221011a7f4bd2c567"),
    "0029_shares": ("ebec11a44449daf6e99cc9340be306824c6f1deeba015ed4338774ab071a3cca"),
    "0030_limit_changes": ("98f4d30b1e12cd2405e5659f4f23b7f941bfc0d7537d98568f7a8efccb9fd141"),
    "0031_audit": ("e70090ec76bd0bf17f3847a036b2dd0a9a583c062fa494ea0bf738da2af81881"),
    "0032_approvals": ("9195fab195234db8df6bbc96f1d5928d05ac93d2c5c0e289b37d0469d631155a"),
    "0033_offers": ("e8df44eb743c73565ae5c8a612ad047e0e5356af655ef3b7536128115b8ebe40"),
    "0034_spending": ("8d4de0a8dbefaa7f92329ae303596a8e33034cec6674e515083c50b7fc36d0f9"),
    "0035_listed": ("8c770c870fdceb081b26792c712de4d608b29851076e3b8ce0a7289c4b3a9b13"),
    "0036_changes_in_audit": ("fd78378a980d052964f9bad4d13b78434d0b6721332663410eab27249beb750f"),
}
"""Likewise."""


@pytest.mark.parametrize(
    ("folder", "checksums"),
    [(SQLITE_MIGRATIONS, CHECKSUMS), (POSTGRES_MIGRATIONS, POSTGRES_CHECKSUMS)],
    ids=["SQLite", "PostgreSQL"],
)
def test_no_migration_is_edited_and_each_new_one_is_listed(
    folder: Path, checksums: dict[str, str]
) -> None:
    found = {file.stem: checksum(file.read_text()) for file in folder.glob("*.sql")}
    assert found == checksums


def test_each_migration_is_there_for_both_engines() -> None:
    assert CHECKSUMS.keys() == POSTGRES_CHECKSUMS.keys()


def test_no_two_migrations_have_the_same_number() -> None:
    numbers = [file.name.partition("_")[0] for file in SQLITE_MIGRATIONS.glob("*.sql")]
    assert sorted(numbers) == [f"{number:04}" for number in range(1, len(numbers) + 1)]


def change(path: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(sql)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("ALTER TABLE jobs RENAME COLUMN reason TO why", "jobs.reason, jobs.why"),
        ("ALTER TABLE jobs DROP COLUMN late", "jobs.late"),
        ("ALTER TABLE jobs ADD COLUMN more TEXT NOT NULL DEFAULT ''", "jobs.more"),
        ("DROP TABLE channel_defaults", "channel_defaults.channel"),
        ("DROP INDEX jobs_due", "jobs_due"),
        ("UPDATE migrations SET checksum = 'other' WHERE name = '0002_replicas'", "0002_replicas"),
    ],
)
async def test_a_database_with_other_tables_is_refused_and_left_unchanged(
    sql: str, named: str, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    change(path, sql)
    before = path.read_bytes()
    with pytest.raises(DatabaseError) as raised:
        await migrate(path)
    assert f"are not those that this version makes ({named}" in str(raised.value)
    assert "Install that version again, or move the file away" in str(raised.value)
    assert path.read_bytes() == before


async def test_a_database_without_checksums_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    change(path, "ALTER TABLE migrations DROP COLUMN checksum")
    assert await migrate(path) == []
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert dict(db.execute("SELECT name, checksum FROM migrations")) == CHECKSUMS


async def test_an_index_and_statistics_of_an_operator_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    change(path, "CREATE INDEX mine ON jobs (channel); ANALYZE;")
    assert await migrate(path) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DROP TABLE deliveries", "are not those that this version makes (deliveries."),
        ("INSERT INTO migrations VALUES ('9999_new_contract', NULL)", "made by a newer version"),
    ],
)
async def test_the_doctor_names_tables_that_the_start_refuses(
    sql: str, said: str, quiet_world: World
) -> None:
    await migrate(quiet_world.database)
    change(quiet_world.database, sql)
    environ = quiet_world.environment("0")
    found = {each.name: each async for each in doctor.examine(environ)}["database"]
    assert not found.ok
    assert said in found.message
