"""Every flag of `elastic-run` in one table, and how a command line is split by it.

`scan` and `help_text` come from the table, and `docs/torchrun.md` is held against it by a test.
`parse.py` gives the words their meaning.

A command line is *flags, then the command, then everything that belongs to the command*. The standard library's
argparse also looks at what follows the command (`train.py --r 1` is refused there, because `--r` could mean two of the
launcher's flags) and does not tell a flag that was typed from its default; so `scan` is our own.
"""

import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from ...rendezvous.base.frozen import dataclass, replace
from ..errors import UsageError

Status = Literal["honoured", "no effect", "unsupported"]
"""What a flag of torchrun does here. The last two are accepted with one line that says why."""

OTLP_HERE = "auto"
"""Of --otlp without a URL."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        usage: its name, in hyphens and without dashes, and after `=` what its value is called; a switch has none.
        help: one or two lines for the help.
        default: its value where it is not given; None: it has none. Only where this is empty is an empty value taken.
        short: its single letter, or empty.
        choices: all the values that it takes, if `metavar` is not just these (`keep|kill`); empty where it takes any.
        torchrun: it is one of torchrun's; the others are our own.
        status: what one of torchrun's flags does here.
        remark: the rest of the sentence that `status` begins, for the line that is printed; empty where it is honoured.
        mirrored: PET_<NAME> in the environment gives it a value where the command line does not.
        own_node: it says something of this node only, so that other nodes must not copy it.
        repeated: it may be given several times, and each counts.
        bare: its value where it is given without one (`--name`); empty: it needs one.
        group: its heading in the help.
    """

    usage: str
    help: str
    default: str | None = None
    short: str = ""
    choices: tuple[str, ...] = ()
    torchrun: bool = True
    status: Status = "honoured"
    remark: str = ""
    mirrored: bool = True
    own_node: bool = False
    repeated: bool = False
    bare: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        """In hyphens; underscores are accepted as well."""
        return self.usage.partition("=")[0]

    @property
    def metavar(self) -> str:
        """What its value is called; empty for a switch."""
        return self.usage.partition("=")[2]

    @property
    def mirror(self) -> str:
        """The environment variable that mirrors it, or empty."""
        return "PET_" + self.name.replace("-", "_").upper() if self.torchrun and self.mirrored else ""

    @property
    def allowed(self) -> tuple[str, ...]:
        """All the values that it takes; empty where it takes any."""
        return self.choices or (tuple(self.metavar.split("|")) if self.metavar.islower() else ())

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every exact way to type it."""
        long = dict.fromkeys([f"--{self.name}", f"--{self.name.replace('-', '_')}"])
        return (f"-{self.short}", *long) if self.short else tuple(long)


SIZE = "Size of the job"
MEETING = "Rendezvous and the store"
CHANGES = "Failures and membership changes"
COMMAND = "The command"
OUTPUT = "Output"
ETCD = "Your own etcd"
IGNORED = "Accepted for compatibility with torchrun, without effect"

NOT_HERE = "the launcher imports no framework"

_own = partial(Flag, torchrun=False)
_own_here = partial(Flag, torchrun=False, own_node=True)


def _group(heading: str, *flags: Flag) -> Iterable[Flag]:
    return (replace(flag, group=heading) for flag in flags)


FLAGS: tuple[Flag, ...] = (
    *_group(
        SIZE,
        Flag("nnodes=N|MIN:MAX", "Nodes: one number, or MIN:MAX.", "1"),
        Flag("nproc-per-node=N|auto|cpu|gpu", "Workers per node: a number, cpu, gpu, auto (the GPUs, else CPUs).", "1"),
        _own("servers=N|MIN:MAX", "Parameter servers, for tables of embeddings: so many, or one on each node.", "0"),
        _own("ps-replicas=0|1", "Servers with a copy of each row: by default 1 where --servers is 2 or more, else 0."),
        _own("ps-checkpoint=DIR", "Save tables in this folder, which all machines see; a job begins with its last."),
        _own("ps-checkpoint-every=SECONDS", "From one checkpoint of the tables to the next.", "300"),
        _own("ps-memory=SIZE", "Memory for the rows of one server, such as 8GiB; by default a part of half there is."),
        _own("ps-disk=DIR:SIZE", "A folder of each node for rows beyond that, and what one server may take there."),
        _own("ps-log=DIR", "Log what servers are told on each machine's disk: one that is killed goes on by that."),
        _own("node-unit=N", "The number of nodes in a round is a multiple of this number (slices, racks).", "1"),
        Flag("standalone", "This machine only: no endpoint, no server.", own_node=True),
        _own(
            "roles=ROLE:N|ROLE:MIN:MAX,...",
            "The job's roles with the nodes of each, the most important first; in place of --nnodes.",
        ),
        _own_here(
            "node-role=ROLE",
            "This node takes this role and no other. Without this flag it takes the role that the job needs most.",
        ),
        _own(
            "role-options=ROLE:KEY=VALUE,...",
            "Options of one role: nproc=N sets its workers per node, on-loss=one restarts only a failed node's "
            "workers (all: everybody's), counts=no lets the job succeed without it. Give the flag once for each role.",
            repeated=True,
        ),
        _own_here("platform=kubernetes", "Only for elastic-run master: it starts and stops the nodes itself, as pods."),
        _own("plan=goodput|fixed|NAME", "What sizes the job while it trains, within --nnodes (else 1:64): by goodput."),
    ),
    *_group(
        MEETING,
        Flag(
            "rdzv-endpoint=HOST[:PORT],...",
            "The store (etcd): HOST[:PORT], or several with commas. If no store answers there, the agent on that "
            "machine starts one.",
            "",
        ),
        Flag(
            "rdzv-id=ID",
            "The job's id in the store (default: derived from the script, its arguments and your user name).",
        ),
        Flag("rdzv-backend=NAME", "c10d, etcd, etcd-v2 and static all select the etcd store.", "static"),
        Flag(
            "rdzv-conf=KEY=VALUE,...",
            "Times in seconds: join_timeout=600, last_call_timeout=3, lease_ttl=5, settle=10 ...",
            "",
        ),
        Flag("master-addr=HOST", "The store's host, for several nodes without --rdzv-endpoint.", ""),
        Flag("master-port=PORT", "The store's port, for several nodes without --rdzv-endpoint.", "29500"),
        Flag("node-rank=N", "The order of this node among the nodes of the first round.", own_node=True),
        Flag("local-addr=HOST", "The address or name under which other nodes reach this node.", own_node=True),
        _own_here("node-name=NAME", "This node's name in the job (default: derived from the host name)."),
        _own_here("topology=LABEL", "A label (rack, switch, slice): nodes with the same label get adjacent ranks."),
        _own_here("store-dir=DIR", "The folder for the files of an etcd that this node starts."),
        _own_here(
            "join-file=FILE",
            "A file of mode 0600 with the job's secret, or with the line to join that the first node prints.",
        ),
        _own("tls-cert=FILE", "Your own certificate for this node's port (PEM), re-read."),
        _own("tls-key=FILE", "Its private key (PEM)."),
        _own("tls-ca=FILE", "The authority whose certificates the job's nodes accept (PEM)."),
        _own(
            "insecure",
            "Neither encrypt nor authenticate: anyone who reaches this job's ports can read, change and end it.",
        ),
    ),
    *_group(
        CHANGES,
        _own(
            "node-check",
            "Check this node before it takes part: CPU, memory, disk, ports, names, the store, torch, and a small "
            "collective with two other nodes in turn. The job refuses a node that fails.",
        ),
        Flag(
            "max-restarts=N",
            "How many failures of the script to recover from. Lost, leaving and joining nodes are not counted.",
            "3",
        ),
        _own(
            "same-failure-limit=N",
            "Stop early when the same failure repeats this often without progress: 2 where all ranks fail alike (1 if "
            "it cannot be fixed, as a missing module) or, without --max-restarts and this flag, the script raises. 0: "
            "never.",
            "3",
        ),
        _own(
            "on-hang=report|restart|fail",
            "When workers make no progress: print which rank is the cause (report), also kill it so that the job "
            "continues with new workers (restart), or end the job (fail).",
            "report",
        ),
        _own(
            "on-straggler=report|replace",
            "When the others wait for one rank in each step: print which (report), or also let a standby take the "
            "place of its node (replace).",
            "report",
        ),
        _own(
            "hang-timeout=SECONDS",
            "Examine workers after so many seconds without progress, or after twice their longest pause so far if "
            "that is more. 0: never.",
            "60",
        ),
        _own(
            "scale-up=now|commit|never",
            "New nodes join at once (now), after the next checkpoint (commit), or only when the membership changes "
            "for another reason (never).",
            "now",
        ),
        Flag(
            "signals-to-handle=NAME,...",
            "On these signals this node leaves the job and forwards the signal to its workers.",
            "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        ),
        Flag("shutdown-timeout=SECONDS", "Seconds that workers have to exit before SIGKILL.", "30"),
        _own(
            "grace-after-failure=SECONDS",
            "Seconds between SIGTERM and SIGKILL for workers that survive a failure, a loss or a departure. 0: no "
            "SIGTERM.",
            "0",
        ),
        _own(
            "detached=keep|kill",
            "keep: processes that the script started in their own session (an upload) keep running after the job has "
            "succeeded; kill: they end with the job. Otherwise they end with their round.",
            "keep",
        ),
    ),
    *_group(
        COMMAND,
        Flag("module", "The command is a Python module, run as `python -m` does.", short="m"),
        Flag("no-python", "The command is an executable, run without Python."),
        Flag("run-path", "Run the script by runpy.run_path; overrides --no-python."),
        Flag(
            "start-method=fork|spawn",
            "fork: workers are forked from an interpreter that has already made the script's first imports; spawn: "
            "each worker is a fresh interpreter.",
            "fork",
            choices=("spawn", "fork", "forkserver"),
        ),
        _own(
            "preload=MODULES",
            "Also import these modules before workers are forked (MODULE,MODULE...); none: import nothing ahead.",
        ),
        _own(
            "framework=torch|tensorflow|horovod|jax|xgboost|none|NAME|FILE.py:CLASS",
            "The environment that workers get: torch is torchrun's, none is only the ranks and the address of rank 0. "
            "Installed packages add others; FILE.py:CLASS is one of yours.",
            "torch",
        ),
        _own(
            "role-command=ROLE:COMMAND",
            "The script and arguments that the workers of one role run in place of the command. Give the flag once "
            "for each role.",
            repeated=True,
        ),
        Flag("role=NAME", "The workers' ROLE_NAME.", "default"),
        Flag("virtual-local-rank", "Each worker sees one GPU, as device 0, and has LOCAL_RANK 0."),
        _own_here(
            "config=FILE",
            "Take flags that are not given here from this TOML file (default: elastic-run.toml, or the table "
            "tool.elastic-run of pyproject.toml, in the working directory); none: from no file.",
        ),
        _own_here(
            "dry-run",
            "Print what would be started, where the nodes would meet, and with which environment; start nothing.",
        ),
    ),
    *_group(
        OUTPUT,
        Flag("log-dir=DIR", "Keep each worker's output here, a folder per job and attempt."),
        _own("keep-attempts=N", "Keep the newest N folders attempt_N under --log-dir; 0 keeps all.", "0"),
        Flag(
            "redirects=0..3|MAP",
            "To files only: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank, 0:1,1:2.",
            "0",
            short="r",
        ),
        Flag("tee=0..3|MAP", "To files and the terminal; written as --redirects.", "0", short="t"),
        Flag(
            "log-line-prefix-template=TEXT",
            "The prefix of a worker's lines on the terminal: ${rank}, ${local_rank}, ${role_name} and ${hostname} are "
            "replaced.",
            "",
        ),
        _own_here(
            "no-prefix",
            "The terminal shows the output of this node's only worker as it is, byte by byte: for a debugger's "
            "prompt, a progress bar.",
        ),
        Flag("local-ranks-filter=N,...", "Show only these local ranks on the terminal.", ""),
        Flag(
            "duplicate-stdout-filters=WORD,...",
            "Copy the stdout lines that contain one of these words to filtered_stdout.log (,, is a comma).",
            "",
        ),
        Flag("duplicate-stderr-filters=WORD,...", "The same for stderr, to filtered_stderr.log.", ""),
        _own_here("summary-json=FILE", "Write the final summary to this file as JSON."),
        _own_here(
            "trace=FILE",
            "Write a timeline of this node's events to this file, for ui.perfetto.dev; one file for each node and run.",
        ),
        _own(
            "history=DIR",
            "Keep the job's events, as this node sees them, in a file in this folder; elastic-run report makes a page "
            "from it.",
        ),
        _own_here(
            "otlp=URL",
            "Send a trace of each recovery to a collector of OpenTelemetry, by OTLP over HTTP; without a URL, where "
            "its own variables say, or to this machine's port 4318.",
            bare=OTLP_HERE,
        ),
        _own_here(
            "dashboard=HOST:PORT",
            "Serve a live page about the job, and print its URL once. Default: loopback and a free port.",
            bare="loopback:0",
        ),
        _own_here(
            "log-format=text|json",
            "The launcher's own lines: text, or json, one object a line with its time, job, node and message.",
            "text",
        ),
        _own_here("log-timestamps", "The launcher's own lines have their time (UTC)."),
        _own_here(
            "live-line=auto|never",
            "auto: on a terminal, the last line of stderr shows the state of the job; never: no such line.",
            "auto",
        ),
        _own("color=auto|always|never", "Colour on the terminal; auto also obeys NO_COLOR.", "auto"),
        _own_here(
            "explain-preload",
            "Print which modules are imported before workers are forked, and why not others; runs nothing.",
        ),
        Flag(
            "print-completion=SHELL",
            "Print a completion script for this shell and exit.",
            choices=("bash", "zsh", "tcsh"),
            mirrored=False,
            own_node=True,
        ),
        _own("version", "Print the version and exit."),
        _own("help", "Print this help and exit.", short="h"),
    ),
    *_group(
        ETCD,
        _own("etcd-cacert=FILE", "Use TLS, and trust the certificate authorities in this PEM file."),
        _own("etcd-cert=FILE", "This client's certificate (PEM), with --etcd-key."),
        _own("etcd-key=FILE", "This client's private key (PEM), with --etcd-cert."),
        _own(
            "etcd-user=NAME|@FILE",
            "A user whose password is in ELASTIC_RUN_ETCD_PASSWORD, or a file that holds user:password.",
        ),
    ),
    *_group(
        IGNORED,
        Flag(
            "monitor-interval=SECONDS",
            "The agent receives worker exits as events and does not poll.",
            "0.1",
            status="no effect",
            remark="because the agent receives a worker's exit as an event and does not poll",
        ),
        Flag(
            "event-log-handler=NAME",
            "Events are log lines and --summary-json.",
            "null",
            status="no effect",
            remark=f"because {NOT_HERE}; read the summary of `--summary-json` instead",
        ),
        Flag(
            "logs-specs=NAME",
            "A plug-in of torchrun (unsupported).",
            status="unsupported",
            mirrored=False,
            remark="try `--log-dir` with `--tee=3`: the plug-in is a class of torch, and " + NOT_HERE,
        ),
        Flag(
            "numa-binding=MODE",
            "Not supported yet.",
            choices=("node", "socket", "exclusive", "core-complex"),
            status="unsupported",
            mirrored=False,
            remark="try `os.sched_setaffinity` in the script, according to `LOCAL_RANK`: workers run on every CPU "
            "that the launcher may use",
        ),
    ),
)

BY_NAME: Mapping[str, Flag] = {flag.name: flag for flag in FLAGS}
BY_LETTER: Mapping[str, Flag] = {flag.short: flag for flag in FLAGS if flag.short}


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the user gave: its text, and where it came from as they wrote it (`--nnodes=2`, `PET_NNODES=2`)."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Scanned:
    """A command line, split: what was given by flag name, and the command with everything after it."""

    given: Mapping[str, Given]
    command: tuple[str, ...]

    def has(self, name: str) -> bool:
        """The user gave this flag (a switch: and did not turn it off)."""
        return name in self.given

    def text(self, name: str) -> str | None:
        """The flag's value as text: what was given, or its default."""
        return self.given[name].text if name in self.given else BY_NAME[name].default

    def without(self, names: Collection[str]) -> "Scanned":
        """The same line, on which these flags were not given."""
        return Scanned({name: value for name, value in self.given.items() if name not in names}, self.command)

    def including(self, name: str, text: str) -> "Scanned":
        """The same line, on which this flag was given as well."""
        return Scanned({**self.given, name: Given(text, f"--{name}={text}")}, self.command)

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a flag that may be given several times, in order."""
        return tuple(self.given[name].text.split("\n")) if name in self.given else ()

    def source(self, name: str) -> str:
        """The flag as the user wrote it, for messages."""
        return self.given[name].source if name in self.given else f"--{name}={self.text(name)}"


def scan(argv: Sequence[str], environ: Mapping[str, str]) -> Scanned:
    """Split `argv` (without the program's name) into flags and the command; the environment's mirrors fill the gaps.

    The last of a repeated flag counts, unless it is meant to be repeated. A long flag may be cut short while it stays
    unambiguous; among several that fit, torchrun's own win, so that what was unambiguous there is so here.

    Raises:
        UsageError: an unknown or ambiguous flag, a value missing or not among the choices.
    """
    given: dict[str, Given] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            words.insert(0, word)
            break
        if word.startswith("--"):
            typed, attached, value = word.partition("=")
            flag = _long(typed)
        else:
            typed, value = word[:2], word[2:]
            flag = BY_LETTER.get(word[1])
            if flag is None or (len(word) > 2 and not flag.metavar and word[2] not in BY_LETTER):
                raise UsageError(_unknown(word))
            attached = value
            if value and not flag.metavar:
                # A bundle of letters, `-mr3`: the switch is taken off and the rest read again.
                words.insert(0, f"-{value}")
                attached = value = ""
            value = value.removeprefix("=")
        if not flag.metavar:
            if attached:
                raise UsageError(f"{word}: {typed} takes no value; write {typed} alone")
            given[flag.name] = Given("1", typed)
            continue
        if flag.bare and not attached:
            given[flag.name] = Given(flag.bare, typed)
            continue
        if not attached:
            if not words or _looks_like_a_flag(words[0]):
                hint = f", or {typed}={words[0]} if that is its value" if words else ""
                raise UsageError(f"{typed} needs a value: write {typed}={flag.metavar}{hint}")
            value = words.pop(0)
        checked = value_of(flag, value, f"{typed}{'=' if typed.startswith('--') else ' '}{value}")
        if flag.repeated and flag.name in given:
            earlier = given[flag.name]
            checked = Given(f"{earlier.text}\n{checked.text}", f"{earlier.source} {checked.source}")
        given[flag.name] = checked
    for flag in FLAGS:
        mirrored = environ.get(flag.mirror, "") if flag.mirror else ""
        if flag.name in given or not mirrored:
            continue
        source = f"{flag.mirror}={mirrored}"
        if flag.metavar:
            given[flag.name] = value_of(flag, mirrored, source)
        elif not re.fullmatch(r"\s*[+-]?\d+\s*", mirrored):
            raise UsageError(f"{source} is neither on nor off: set it to 1 or 0")
        elif int(mirrored):
            given[flag.name] = Given("1", source)
    return Scanned(given, tuple(words))


def _looks_like_a_flag(word: str) -> bool:
    """A word that is hardly meant as a value: dashes and a letter (`-1` is a number, and `-` a file)."""
    return re.match(r"--?[A-Za-z]", word) is not None or word == "--"


def value_of(flag: Flag, value: str, source: str) -> Given:
    """The value as the flag's; `source`: where it came from, for messages. Raises UsageError."""
    if not value and flag.default != "":
        raise UsageError(f"{source} is empty: write --{flag.name}={flag.metavar}, or leave the flag out")
    if flag.allowed and value not in flag.allowed:
        raise UsageError(f"{source} is not one of {', '.join(flag.allowed)}{did_you_mean(value, flag.allowed)}")
    return Given(value, source)


def _long(typed: str) -> Flag:
    """The flag that a long spelling means, cut short or not."""
    name = typed[2:].replace("_", "-")
    if name in BY_NAME:
        return BY_NAME[name]
    fitting = [flag for flag in FLAGS if name and flag.name.startswith(name)]
    fitting = [flag for flag in fitting if flag.torchrun] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"{typed} is ambiguous: write {' or '.join(f'--{flag.name}' for flag in fitting)}")
    raise UsageError(_unknown(typed))


def _unknown(typed: str) -> str:
    name = typed.lstrip("-").partition("=")[0].replace("_", "-").lower()
    return (
        f"unknown flag {typed}{did_you_mean(name, BY_NAME, prefix='--')} Flags of your script go after its name; "
        "`elastic-run --help` lists the launcher's"
    )


def did_you_mean(word: str, known: Collection[str], prefix: str = "") -> str:
    """The end of a sentence: `: did you mean X?` with the known word nearest to `word`, a full stop without one."""
    from difflib import get_close_matches  # here, because words are rarely wrong

    near = get_close_matches(word, known, n=1) or [each for each in known if word[4:] and each.startswith(word[:-1])]
    return f": did you mean {prefix}{near[0]}?" if near else "."


def notes(scanned: Scanned) -> tuple[str, ...]:
    """One line for each given flag that does nothing here."""
    verbs = {"no effect": "has no effect", "unsupported": "is not supported"}
    given = (flag for flag in FLAGS if flag.status in verbs and scanned.has(flag.name))
    return tuple(
        f"{scanned.source(flag.name)} {verbs[flag.status]}: {flag.remark.removeprefix('because ')}" for flag in given
    )


def completion(shell: str) -> str:
    """A script with which bash, zsh or tcsh completes this command's flags, and else files."""
    names = " ".join(f"--{flag.name}{'=' if flag.metavar and not flag.bare else ''}" for flag in FLAGS)
    match shell:
        case "zsh":
            return f'#compdef elastic-run\ncompadd -S "" -- {names}\n_files\n'
        case "tcsh":
            plain = " ".join(f"{flag.name}{'=' if flag.metavar else ''}" for flag in FLAGS)
            return f"complete elastic-run 'c/--/({plain})/' 'p/*/f/'\n"
        case _:
            return (
                "_elastic_run() {\n"
                '    local word="${COMP_WORDS[COMP_CWORD]}"\n'
                "    [[ $word == -* ]] || return\n    compopt -o nospace 2>/dev/null\n"
                f'    COMPREPLY=($(compgen -W "{names}" -- "$word"))\n'
                "}\ncomplete -o default -F _elastic_run elastic-run\n"
            )


OTHERS = {
    "train": "train a model in four functions on files of records",
    "evaluate": "compute its loss and metrics on other records",
    "predict": "write its outputs, each once",
    "export": "write a model with features as a folder that needs torch alone",
    "new": "print such a model to begin with",
    "sql": "train, evaluate and predict in statements of SQL",
    "master": "lead a job without workers; same flags and script",
    "join": "join a job by the line that its first node prints",
    "doctor": "check this machine and the store before a job",
    "status": "show a running job",
    "report": "make a page of the events that --history keeps",
    "exporter": "serve metrics of all jobs to Prometheus",
    "credentials": "write a file with which others may look at a job, and change nothing",
    "replay": "repeat the decisions that --trace has recorded",
}
"""The other commands, and what each does; each has a --help of its own."""


def help_text(width: int) -> str:
    others = (f"  elastic-run {name:<11} {what}" for name, what in OTHERS.items())
    blocks = [
        "elastic-run [flags] train.py [the script's own arguments]",
        textwrap.fill(
            "Starts a training script on one or more machines. Machines may join and leave while it runs. Accepts "
            "every flag of torchrun, also with underscores and as PET_<NAME> in the environment.",
            width,
        ),
        "Other commands (a script of the same name is written as ./status):\n" + "\n".join(others),
    ]
    for group in dict.fromkeys(flag.group for flag in FLAGS):
        lines = [f"{group}:"]
        for flag in (flag for flag in FLAGS if flag.group == group):
            letter = f"-{flag.short}, " if flag.short else ""
            lines.append(f"  {letter}--{f'{flag.name}[={flag.metavar}]' if flag.bare else flag.usage}")
            default = f" Default: {flag.default}." if flag.default and flag.status == "honoured" else ""
            lines.append(textwrap.fill(flag.help + default, width, initial_indent=" " * 6, subsequent_indent=" " * 6))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
