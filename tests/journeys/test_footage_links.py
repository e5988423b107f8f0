"""Footage links that open a page: the form refuses them, with the direct link if one is known."""

from tests.world import World

DRIVE_FILE = "1AbCdEfGhIjKlMn"
DIRECT_DRIVE = (
    f"https://drive.usercontent.google.com/download?id={DRIVE_FILE}&export=download&confirm=t"
)
SHAREPOINT = "https://contoso-my.sharepoint.com"

WITH_A_DIRECT_FORM = {
    f"https://drive.google.com/file/d/{DRIVE_FILE}/view?usp=sharing": DIRECT_DRIVE,
    f"https://drive.google.com/file/d/{DRIVE_FILE}/preview": DIRECT_DRIVE,
    f"https://drive.google.com/open?id={DRIVE_FILE}": DIRECT_DRIVE,
    f"https://docs.google.com/file/d/{DRIVE_FILE}/edit": DIRECT_DRIVE,
    "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=0": (
        "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=1"
    ),
    f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy": (
        f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy&download=1"
    ),
}
ONLY_A_PAGE = [
    f"https://drive.google.com/drive/folders/{DRIVE_FILE}",
    "https://photos.google.com/share/AF1Qip",
    "https://www.dropbox.com/scl/fo/a1/h?rlkey=k3y",
    "https://www.dropbox.com/home/Footage?preview=anna.mp4",
    "https://1drv.ms/v/s!AbC",
    "https://onedrive.live.com/?id=ABC&cid=DEF",
    f"{SHAREPOINT}/personal/anna/_layouts/15/stream.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/onedrive.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://music.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ",
    "https://youtu.be/dQw4w9WgXcQ",
    "https://vimeo.com/76979871",
    "https://player.vimeo.com/video/76979871",
    "https://www.loom.com/share/0a1b2c",
    "https://www.icloud.com/iclouddrive/0a1b2c#anna",
    "https://share.icloud.com/photos/0a1b2c",
    "https://acme.app.box.com/s/0a1b2c",
    "https://acme.slack.com/files/U024BE7LH/F024BERPE/anna.mp4",
    "https://files.slack.com/files-pri/T024BE7LD-F024BERPE/anna.mp4",
    "https://us02web.zoom.us/rec/share/0a1b2c",
]
FILES = [
    DIRECT_DRIVE,
    "https://dl.dropboxusercontent.com/scl/fi/a1/anna.mp4?rlkey=k3y",
    "https://player.vimeo.com/progressive_redirect/playback/76979871/rendition/1080p/file.mp4",
    "https://app.box.com/shared/static/0a1b2c.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/download.aspx?UniqueId=0a1b2c",
    "https://storage.googleapis.com/footage/anna.mp4?X-Goog-Signature=5160",
]


async def test_the_form_refuses_footage_that_is_a_page_and_shows_the_direct_link(
    world: World,
) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    passed = []
    for link, direct in [*WITH_A_DIRECT_FORM.items(), *((each, "") for each in ONLY_A_PAGE)]:
        # The bot is not in that channel, so that a link that passes starts no training.
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        said = form.errors.get("train_video_url", "")
        remedy = f"paste this one: {direct}" if direct else "Use one that downloads it"
        if "not the file" not in said or remedy not in said:
            passed.append((link, said))
    assert passed == []


async def test_the_form_takes_direct_links_of_the_same_services(world: World) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    for link in FILES:
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        assert list(form.errors) == ["where"], form.errors
