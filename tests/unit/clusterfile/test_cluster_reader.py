"""Cluster files: the values of a good one, and each mistake of a broken one with line and mend."""

from pathlib import Path

import pytest

from controller.alerts.notify_tables import NotifyChannel
from controller.clusterfile.cluster_reader import Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.core.rules.policy import Policy

GOOD = """\
include = ["tasks.toml"]
[cluster]
name = "llm-a"
checkpoint_dir = "/mnt/ckpt"
[ssh]
user = "train"
python = "/opt/bin/python"
[[nodes]]
hosts = "gpu-[001-003]"
gpus = 8
failure_domain = "rack-1"
labels = { row = "4" }
[[nodes]]
name = "late-1"
host = "10.0.0.99"
port = 2222
gpus = 4
training_address = "10.1.0.99"
[policy]
restarts = 5
"""

TASKS = """\
[[task]]
name = "gpt"
weight = 1.0
workers = 2
min_workers = 1
num_micro_batches = 4
[task.model]
num_layers = 2
hidden_size = 32
num_attention_heads = 2
seq_length = 32
[task.throughput]
points = [
    { workers = 1, flops_per_s = 3.0e9, layout = { tp = 1, pp = 1, dp = 1 } },
    { workers = 2, flops_per_s = 5.0e9, layout = { tp = 1, pp = 1, dp = 2 } },
]
"""

COMMAND = """\
[[task]]
name = "run"
weight = 1.0
workers = 1
min_workers = 1
checkpoint_dir = "runs"
[task.command]
argv = ["python", "train.py"]
cwd = "programs"
[task.throughput]
points = [{ workers = 1, flops_per_s = 3.0e9, layout = { tp = 1, pp = 1, dp = 1 } }]
"""


def loaded(folder: Path, text: str = GOOD, tasks: str = TASKS) -> Cluster:
    (folder / "cluster.toml").write_text(text)
    (folder / "tasks.toml").write_text(tasks)
    return load_cluster(Path("cluster.toml"))


def refusal(folder: Path, text: str = GOOD, tasks: str = TASKS) -> list[str]:
    with pytest.raises(ClusterFileError) as refused:
        loaded(folder, text, tasks)
    return str(refused.value).splitlines()


def test_a_file_says_which_nodes_train_what(folder: Path) -> None:
    cluster = loaded(folder)
    names = [node.address.node for node in cluster.nodes]
    assert names == ["gpu-001", "gpu-002", "gpu-003", "late-1"]
    first, last = cluster.nodes[0], cluster.nodes[-1]
    ssh = first.address.ssh
    assert (ssh.host, ssh.port, ssh.user) == ("gpu-001", 22, "train")
    assert first.address.num_workers == 8
    assert first.address.state_dir == "~/.unicron/llm-a/gpu-001"
    assert ssh.client_key == str(folder / ".ssh" / "id_ed25519")
    assert ssh.known_hosts[0] == str(folder / ".ssh" / "known_hosts")
    assert (first.failure_domain, first.labels) == ("rack-1", {"row": "4"})
    assert (last.address.ssh.host, last.address.ssh.port) == ("10.0.0.99", 2222)
    assert last.address.training_address == "10.1.0.99"
    assert cluster.has_gpus
    assert cluster.policy == Policy(restarts=5)
    assert [task.name for task in cluster.tasks] == ["gpt"]
    assert cluster.run_dir == Path("/state/unicron/llm-a")


def test_the_state_home_of_the_user_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert loaded(folder).run_dir == Path("/var/state/unicron/llm-a")
    monkeypatch.setenv("HOME", "/home/op")
    text = GOOD.replace(
        "[ssh]", f'[ssh]\nidentity = "{folder}/.ssh/id_ed25519"\nhost_key = "ssh-ed25519 AAAA"'
    )
    for value in ("relative", ""):  # the specification says to ignore a relative path
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert loaded(folder, text).run_dir == Path("/home/op/.local/state/unicron/llm-a")


def test_a_group_may_differ_from_the_defaults(folder: Path) -> None:
    text = GOOD.replace("gpus = 4\n", 'gpus = 4\nuser = "root"\nstate_dir = "/srv/unicron/"\n')
    last = loaded(folder, text).nodes[-1].address
    assert (last.ssh.user, last.python) == ("root", "/opt/bin/python")
    assert last.state_dir == "/srv/unicron/llm-a/late-1"


def test_paths_are_relative_to_the_file_that_has_them(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "run.toml").write_text(COMMAND)
    text = GOOD.replace('["tasks.toml"]', '["tasks.toml", "below/run.toml"]')
    text = text.replace('"/mnt/ckpt"', '"ckpt"\ndata = "corpus.txt"\nrun_dir = "run"')
    cluster = loaded(folder, text)
    assert cluster.checkpoints == folder / "ckpt"
    assert cluster.data == str(folder / "corpus.txt")
    assert cluster.run_dir == folder / "run"
    command = cluster.tasks[1]
    assert command.command is not None
    assert command.command.cwd == str(folder / "below" / "programs")
    assert command.checkpoint_dir == str(folder / "below" / "runs")


def test_settings_files_stay_valid_as_includes(folder: Path) -> None:
    settings = '[policy]\nmax_recoveries = 1\n[failure_domains]\nrack-2 = ["late-1"]\n'
    (folder / "settings.toml").write_text(settings)
    cluster = loaded(folder, GOOD.replace('["tasks.toml"]', '["tasks.toml", "settings.toml"]'))
    assert cluster.policy == Policy(restarts=5, max_recoveries=1)
    assert [node.failure_domain for node in cluster.nodes] == ["rack-1"] * 3 + ["rack-2"]


def test_hosts_have_training_addresses_one_by_one(folder: Path) -> None:
    text = GOOD.replace("gpus = 8\n", 'gpus = 8\ntraining_address = "gpu-[001-003]-ib"\n')
    addresses = [node.address.training_address for node in loaded(folder, text).nodes]
    assert addresses == ["gpu-001-ib", "gpu-002-ib", "gpu-003-ib", "10.1.0.99"]


C = "cluster.toml:"
# What is replaced in the good file or in its tasks, by what, and every line of the refusal.
BROKEN = {
    "unknown key": ("user =", "usr =", [f"{C}6: ssh: unknown key usr; did you mean 'user'?"]),
    "unknown key like no other": (
        'user = "train"', 'user = "train"\nzzz = 1',
        [(f"{C}7: ssh: unknown key zzz; known: config, host_key, identity, known_hosts, port,"
         " proxy_jump, python, state_dir, unit, user")],
    ),
    "unknown section": ("[policy]", "[polcy]", [f"{C}19: unknown section 'polcy'; did you mean 'policy'?"]),
    "unknown key of a group": (
        "port = 2222", "prt = 2222", [f"{C}16: nodes 2: unknown key prt; did you mean 'port'?"],
    ),
    "unknown setting": (
        "restarts = 5", "restart = 5",
        [f"{C}20: policy.restart: unknown key; did you mean 'restarts'?"],
    ),
    "unknown key of a task": (
        "weight = 1.0", "wait = 1.0", ["tasks.toml:3: task gpt: unknown key wait; did you mean 'weight'?"],
    ),
    "unknown key of a model": (
        "num_layers = 2", "layers = 2",
        ["tasks.toml:8: task gpt: unknown key model.layers; did you mean 'num_layers'?"],
    ),
    "unknown key of a point": (
        "workers = 1, flops_per_s", "workers = 1, flops",
        ["tasks.toml:14: task gpt: unknown key throughput.points 1.flops; did you mean 'flops_per_s'?"],
    ),
    "no cluster": (
        '[cluster]\nname = "llm-a"\ncheckpoint_dir = "/mnt/ckpt"\n', "",
        [f'{C}1: has no [cluster] section: write [cluster] with name = "..."'],
    ),
    "no name": ('name = "llm-a"\n', "", [f"{C}2: cluster: name is missing"]),
    "a name that is no name": (
        '"llm-a"', '"llm a"',
        [(f"{C}3: cluster: name = 'llm a': must be 1 to 32 letters, digits, '-' or '_', and begin with"
         " a letter or digit")],
    ),
    "a wrong type": ("port = 2222", 'port = "2222"', [f"{C}16: nodes 2: port = '2222': must be a valid integer"]),
    "a port that is none": (
        "port = 2222", "port = 70000", [f"{C}16: nodes 2: port = 70000: must be less than or equal to 65535"],
    ),
    "a section that is a value": (
        '[cluster]\nname = "llm-a"\ncheckpoint_dir = "/mnt/ckpt"\n', "cluster = 1\n",
        [f"{C}2: cluster: must be a section; write [cluster]"],
    ),
    "a table where tables belong": (
        "[policy]\nrestarts = 5", "[[policy]]\nrestarts = 5",
        [f"{C}19: policy: must be a section; write [policy]"],
    ),
    "one node table": (
        GOOD[GOOD.index("[[nodes]]"):], '[nodes]\nname = "a"\ngpus = 8\n',
        [f"{C}8: nodes: must be a section; write [[nodes]]"],
    ),
    "no nodes": (
        GOOD[GOOD.index("[[nodes]]"):], "",
        [f"{C}1: has no [[nodes]]: write a [[nodes]] table for each group of nodes"],
    ),
    "no task": (
        'include = ["tasks.toml"]', "", [f"{C}1: has no [[task]]: write a [[task]] table for each, or include a file"],
    ),
    "no such include": (
        '["tasks.toml"]', '["task.toml"]',
        [f"{C}1: include: there is no file task.toml; a path is relative to this file"],
    ),
    "an include at a stranger's home": (
        '["tasks.toml"]', '["~nobodyx/tasks.toml"]',
        [f"{C}1: include: there is no file ~nobodyx/tasks.toml; a path is relative to this file"],
    ),
    "an include whose name is too long": (
        '["tasks.toml"]', f'["{"a" * 300}"]',
        [f"{C}1: include: there is no file {'a' * 300}; a path is relative to this file"],
    ),
    "an include that is a day": (
        '["tasks.toml"]', "1979-05-27",
        [f'{C}1: include: must be a list of files: ["tasks.toml"]'],
    ),
    "an include that is no list": (
        '["tasks.toml"]', '"tasks.toml"',
        [f'{C}1: include: must be a list of files: ["tasks.toml"]'],
    ),
    "an include twice": (
        '["tasks.toml"]', '["tasks.toml", "tasks.toml"]', [f"{C}1: include: tasks.toml is named twice"],
    ),
    "a name for many hosts": (
        "gpus = 8", 'gpus = 8\nname = "x"',
        [f"{C}11: nodes 1: name: hosts names the nodes already; leave name out"],
    ),
    "nodes without a name": (
        'name = "late-1"\n', "",
        [f'{C}13: nodes 2: names no node: write hosts = "gpu-[001-016]", or name and host'],
    ),
    "no size": (
        "gpus = 8\n", "",
        [f"{C}8: nodes 1: says no size: write gpus = 8, or workers = 2 for nodes without GPUs"],
    ),
    "two sizes": (
        "gpus = 8\n", "gpus = 8\nworkers = 2\n",
        [f"{C}11: nodes 1: workers: gpus gives the size already; leave one of them out"],
    ),
    "GPUs and CPUs": (
        "gpus = 4\n", "workers = 4\n",
        [(f"{C}17: nodes 2: workers: the nodes at cluster.toml:8 have gpus; ranks with and without GPUs"
         " can't train one task, so write a cluster file for each kind")],
    ),
    "a node twice": (
        '"late-1"', '"gpu-002"',
        [f"{C}13: nodes 2: gpu-002 is listed at cluster.toml:8 already; name each node once"],
    ),
    "a bracket that is open": (
        "[001-003]", "[001-003",
        [f"{C}9: nodes 1: hosts = 'gpu-[001-003' brackets do not match; write them as in gpu-[001-004]"],
    ),
    "a host that is no name": (
        '"gpu-[001-003]"', '"::1"',
        [(f"{C}9: nodes 1: hosts: '::1' must be 1 to 64 letters, digits, '.', '-' or '_', and begin with a"
         " letter or digit; give such a node a name of its own: name and host")],
    ),
    "too few training addresses": (
        "gpus = 8\n", 'gpus = 8\ntraining_address = "ib-[1-2]"\n',
        [f"{C}11: nodes 1: training_address: has 2 addresses for 3 hosts; give one for each"],
    ),
    "no such key file": (
        "[ssh]\n", '[ssh]\nidentity = "/nowhere/key"\n',
        [f"{C}6: ssh: identity: there is no file /nowhere/key; make a key with ssh-keygen, or name another"],
    ),
    "a key at a stranger's home": (
        "[ssh]\n", '[ssh]\nidentity = "~nobodyx/key"\n',
        [(f"{C}6: ssh: identity: there is no file HERE/~nobodyx/key; make a key with ssh-keygen, or name"
         " another")],
    ),
    "a key whose name is too long": (
        "[ssh]\n", f'[ssh]\nidentity = "/{"k" * 300}"\n',
        [f"{C}6: ssh: identity: there is no file /{'k' * 300}; make a key with ssh-keygen, or name another"],
    ),
    "a run directory at a stranger's home": (
        "[cluster]\n", '[cluster]\nrun_dir = "~nobodyx/run"\n',
        [f"{C}3: cluster.run_dir: there is no user nobodyx on this machine"],
    ),
    "no known hosts": (
        "gpus = 4\n", 'gpus = 4\nknown_hosts = "nowhere"\n',
        [(f"{C}18: nodes 2: known_hosts: there is no file HERE/nowhere; fill it with ssh-keyscan, or give"
         " host_key")],
    ),
    "a state directory that is relative": (
        "[ssh]\n", '[ssh]\nstate_dir = "unicron"\n',
        [(f"{C}6: ssh: state_dir = 'unicron': must be absolute or begin with ~/, since it is a path on the"
         " nodes")],
    ),
    "checkpoints at home": (
        '"/mnt/ckpt"', '"~/ckpt"',
        [(f"{C}4: cluster: checkpoint_dir = '~/ckpt': must be absolute or relative to this file: ~ can differ"
         " between nodes")],
    ),
    "no checkpoints": (
        'checkpoint_dir = "/mnt/ckpt"\n', "",
        [(f"{C}2: cluster.checkpoint_dir is missing, and gpt has none of its own: name a directory that all"
         " nodes share")],
    ),
    "a setting out of range": (
        "restarts = 5", "restarts = 0",
        [f"{C}20: policy.restarts: 0 must be a whole number of 1 or more"],
    ),
    "an approval rule without an outcome": (
        "[policy]", "[[approval]]\nhours = '22:00-06:00'\n[policy]",
        [f"{C}19: approval 1: then is missing"],
    ),
    "an approval rule with wrong values": (
        "[policy]", "[[approval]]\nthen = 'maybe'\nseverity = ['SEV9']\nhours = '9-17'\n[policy]",
        [
            f"{C}20: approval 1: then = 'maybe': must be 'auto', 'ask' or 'never'",
            f"{C}21: approval 1: severity 1 = 'SEV9': must be 'SEV1', 'SEV2' or 'SEV3'",
            f"{C}22: approval 1: hours = '9-17': must be hours of the day in UTC, such as 22:00-06:00",
        ],
    ),
    "an approval rule that counts down without asking": (
        "[policy]", "[[approval]]\nthen = 'auto'\nauto_after_s = 5\n[policy]",
        [f"{C}21: approval 1: auto_after_s: belongs to then = \"ask\""],
    ),
    "a channel that leads nowhere": (
        "[policy]", '[[notify]]\nname = "mail"\n[policy]',
        [f"{C}19: notify 1: url: write it, or url_file for a file that has it; one of the two"],
    ),
    "a channel that leads to two places": (
        "[policy]", '[[notify]]\nname = "mail"\nurl = "json://x"\nurl_file = "x.url"\n[policy]',
        [f"{C}21: notify 1: url: write it, or url_file for a file that has it; one of the two"],
    ),
    "a channel with wrong values, whose secret is not repeated": (
        "[policy]", '[[notify]]\nname = "m"\nurl = "s3cret"\nseverity = "page"\nmost_per_hour = 0\n[policy]',
        [
            f"{C}21: notify 1: url: must be SCHEME://..., as https://appriseit.com says it for each service",
            f"{C}22: notify 1: severity = 'page': must be 'info', 'warning' or 'critical'",
            f"{C}23: notify 1: most_per_hour = 0: must be greater than or equal to 1",
        ],
    ),
    "two channels of one name": (
        "[policy]", '[[notify]]\nname = "m"\nurl = "json://x"\n[[notify]]\nname = "m"\nurl = "json://y"\n[policy]',
        [f"{C}23: notify.name: m is there already; choose another"],
    ),
    "a share above one": (
        "restarts = 5", "storm_lost_share = 30", [f"{C}20: policy.storm_lost_share: 30 must be a share, at most 1"],
    ),
    "a node of no domain": (
        "[policy]", '[failure_domains]\nrack-2 = ["gpu-004"]\n[policy]',
        [f"{C}20: failure_domains.rack-2: no node 'gpu-004'; did you mean 'gpu-003'?"],
    ),
    "a node in two domains": (
        "[policy]", '[failure_domains]\nrack-2 = ["gpu-[002-003]"]\n[policy]',
        [f"{C}20: failure_domains.rack-2: gpu-002 is in rack-1 already; keep it in one domain"],
    ),
    "no TOML": ("[ssh]", "[ssh", [f"{C}5: not valid TOML: expected ']' at the end of a table declaration"]),
    "two tasks of one name": (
        TASKS, TASKS + TASKS,
        [("tasks.toml:18: task gpt: name: tasks.toml:1 has a task of this name already; give each a name of"
         " its own")],
    ),
    "a size that is not listed": (
        "workers = 2\nmin", "workers = 3\nmin",
        ["tasks.toml:4: task gpt: workers = 3: must be a listed size: 1, 2"],
    ),
    "tasks at home": (
        "weight = 1.0", 'weight = 1.0\ndata = "~/text"',
        [("tasks.toml:4: task gpt: data = '~/text': must be absolute or relative to this file: ~ can differ"
         " between nodes")],
    ),
    "a main section in an include": (
        TASKS, TASKS + "[ssh]\nport = 1\n",
        ["tasks.toml:17: ssh belongs into cluster.toml, not into a file that it includes"],
    ),
    "a run directory with too long a name": (
        'name = "llm-a"', f'name = "llm-a"\nrun_dir = "/{"x" * 120}"',
        [(f"{C}4: cluster.run_dir: /{'x' * 120} is too long by 23 bytes for the path of a socket, which has at"
         " most 107; choose a shorter one")],
    ),
    "an empty file": (
        GOOD, "",
        [f'{C}1: has no [[nodes]]: write a [[nodes]] table for each group of nodes',
         f"{C}1: has no [[task]]: write a [[task]] table for each, or include a file",
         f'{C}1: has no [cluster] section: write [cluster] with name = "..."'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_with_line_and_mend(
    folder: Path, old: str, new: str, expected: list[str]
) -> None:
    assert old in GOOD or old in TASKS
    text = GOOD.replace(old, new)
    tasks = TASKS if old in GOOD and old not in TASKS else TASKS.replace(old, new, 1)
    expected = [line.replace("HERE", str(folder)) for line in expected]
    assert refusal(folder, text, tasks) == expected


def test_tasks_that_do_not_fit_the_nodes_are_refused(folder: Path) -> None:
    text = GOOD[: GOOD.index("[[nodes]]")] + '[[nodes]]\nname = "a"\ngpus = 1\n'
    assert refusal(folder, text) == [
        (
            "cluster.toml:1: the tasks want 2 workers (gpt 2), but the nodes have 1: add nodes, or lower"
            " workers of a task"
        )
    ]


def test_channels_say_who_is_notified_of_what(folder: Path) -> None:
    text = (
        '[[notify]]\nname = "a"\nurl = "json://x/y"\nseverity = "critical"\ntasks = ["gpt"]\n'
        '[[notify]]\nname = "b"\nurl_file = "secret/b.url"\nmost_per_hour = 3\n[policy]'
    )
    one, two = loaded(folder, GOOD.replace("[policy]", text)).channels
    assert one == NotifyChannel("a", "critical", ("gpt",), 20, "json://x/y")
    assert two == NotifyChannel("b", "warning", (), 3, "", folder / "secret" / "b.url")


def test_all_mistakes_are_listed_in_the_order_of_the_files(folder: Path) -> None:
    text = GOOD.replace("user =", "usr =").replace("port = 2222", "port = 0")
    found = refusal(folder, text, TASKS.replace("weight = 1.0", "weight = 0"))
    assert [line.partition(": ")[0] for line in found] == [
        "cluster.toml:6", "cluster.toml:16", "tasks.toml:3",
    ]  # fmt: skip


def test_a_file_that_is_not_there_is_one_line(folder: Path) -> None:
    with pytest.raises(ClusterFileError) as refused:
        load_cluster(Path("nowhere.toml"))
    assert str(refused.value) == "nowhere.toml: there is no such file; check the path"


def test_control_characters_can_not_break_a_line(folder: Path) -> None:
    found = refusal(folder, GOOD.replace('"late-1"', '"a\\u001b[2J\\nb"'))
    assert len(found) == 1
    assert "\x1b" not in found[0]
