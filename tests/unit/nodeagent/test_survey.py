"""What ends the processes of a login with it."""

import getpass
from pathlib import Path

from nodeagent.survey import _nearest, why_login_ends


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_login_ends_its_processes_where_logind_or_slurm_does(tmp_path: Path) -> None:
    assert why_login_ends(tmp_path) == ""
    write(tmp_path / "etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert why_login_ends(tmp_path) == ""
    write(
        tmp_path / "etc/systemd/logind.conf.d/site.conf",
        "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n",
    )
    assert why_login_ends(tmp_path) == "KillUserProcesses=yes in logind.conf"
    write(tmp_path / "etc/pam.d/sshd", "# account required pam_slurm_adopt.so\n")
    assert why_login_ends(tmp_path).startswith("KillUserProcesses")
    write(tmp_path / "etc/pam.d/sshd", "account required pam_slurm_adopt.so\n")
    assert why_login_ends(tmp_path).startswith("pam_slurm_adopt puts logins into a Slurm job")
    write(tmp_path / "var/lib/systemd/linger" / getpass.getuser())
    assert why_login_ends(tmp_path) == ""


def test_a_user_that_logind_spares(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    write(
        tmp_path / "etc/systemd/logind.conf",
        f"KillUserProcesses=yes\nKillExcludeUsers=root {getpass.getuser()}\n",
    )
    assert why_login_ends(tmp_path) == ""


def test_the_nearest_directory_of_a_path_that_can_not_be_looked_at(tmp_path: Path) -> None:
    assert _nearest(tmp_path / ("a" * 300) / "b") == tmp_path
    assert _nearest(tmp_path / "none" / "b") == tmp_path
    assert _nearest(Path("~nobodyx/a")) == Path()
