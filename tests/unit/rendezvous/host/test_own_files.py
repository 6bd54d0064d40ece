"""Names from elsewhere stay in their folder, and folders are this user's alone."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.host.mounts import Mount, mount_of, parse_mounts
from elastic_run.rendezvous.host.own_files import (
    LONGEST_NAME,
    NotOwn,
    dated_folder,
    file_name,
    own_folder,
    read_own,
    replace_own,
    write_own_first,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("night-7", "night-7"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("..", "job"),
        ("", "job"),
        (".hidden", "hidden"),
        ("a/b\\c\x00d\ne", "a_b_c_d_e"),
        ("x" * 300, "x" * LONGEST_NAME),
    ],
)
def test_a_name_becomes_one_part_of_a_path(text: str, name: str) -> None:
    assert file_name(text) == name


def test_folders_of_starts_sort_by_time_and_two_of_one_second_are_two(tmp_path: Path) -> None:
    made = [dated_folder(tmp_path, "job", 1_795_755_901.9 + more) for more in (0, 0, 0, 1)]
    stem = "job_20261127T050501Z"
    assert [each.name for each in made] == [stem, f"{stem}-2", f"{stem}-3", "job_20261127T050502Z"]
    assert made == sorted(made) and {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}
    assert (tmp_path / "latest").readlink() == Path("job_20261127T050502Z"), "the whole folder can be moved"
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(each.name for each in made), "latest"]


def test_what_others_have_put_under_the_name_of_a_folder_or_of_latest_is_not_followed(tmp_path: Path) -> None:
    logs, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    for folder in (logs, elsewhere, elsewhere / "kept"):
        folder.mkdir()
    (logs / "job_19700101T000000Z").symlink_to(elsewhere)
    (logs / "latest").symlink_to(elsewhere / "kept")
    made = dated_folder(logs, "job", 0.0)
    assert made.name == "job_19700101T000000Z-2" and made.is_dir() and not made.is_symlink()
    assert (logs / "latest").readlink() == Path(made.name)
    assert [path.name for path in elsewhere.iterdir()] == ["kept"] and not list((elsewhere / "kept").iterdir())


def test_a_file_of_the_users_that_is_called_latest_stays(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("mine")
    dated_folder(tmp_path, "job", 0.0)
    assert (tmp_path / "latest").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@given(st.text())
def test_no_name_leaves_its_folder(text: str) -> None:
    name = file_name(text)
    assert name not in ("", ".", "..") and "\x00" not in name and len(Path(name).parts) == 1


def test_a_folder_is_made_for_this_user_alone_and_taken_again(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for _ in range(2):
        own_folder(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    own_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_into_which_others_could_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NotOwn, match=r"can be written by others \(mode 0777\)"):
        own_folder(folder)


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "own").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotOwn, match="is no folder, or a link to one"):
        own_folder(tmp_path / "own")
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_a_file_that_everybody_can_read_holds_no_password(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    secret.chmod(0o640)
    assert read_own(secret, shared=True) == "hush"
    with pytest.raises(NotOwn, match=r"mode 0640\): chmod 600"):
        read_own(secret)
    secret.chmod(0o644)
    with pytest.raises(NotOwn, match=r"mode 0644\): chmod 600") as caught:
        read_own(secret, shared=True)
    assert "hush" not in str(caught.value)


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    lines = (
        "36 35 0:33 / /run/a\\040b ro,nosuid shared:7 master:1 - tmpfs tmpfs rw,size=4k\n"
        "37 35 0:34 /x /run/secrets/token rw,relatime - ext4 /dev/sda1 ro\n"
        "rubbish\n38 35 0:35 / /y ro\n"
    )
    assert parse_mounts(lines) == {
        36: Mount(36, "/run/a b", "tmpfs", read_only=True),
        37: Mount(37, "/run/secrets/token", "ext4", read_only=False),
    }


def test_an_open_file_lies_in_a_mount(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        found = mount_of(file.fileno())
    assert found is not None and tmp_path.is_relative_to(found.point)
    assert mount_of(1 << 20) is None


def test_a_file_is_replaced_as_a_whole_and_its_first_writer_wins(tmp_path: Path) -> None:
    path = tmp_path / "own"
    assert write_own_first(path, "one") and not write_own_first(path, "two")
    assert read_own(path) == "one" and stat.S_IMODE(path.stat().st_mode) == 0o600
    replace_own(path, "three")
    assert read_own(path) == "three" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
