"""What is true of each held-out script: whether it hangs, which rank is the cause, and of what kind the cause is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass(frozen=True, slots=True)
class HeldOutCase:
    """One script of `scripts/`, and what a right diagnosis of it is.

    Attributes:
        name: Of the script, without `.py`.
        kind: A `fault` stands still for ever; an `innocent` only looks like it, and ends with code 0.
        culprits: The ranks of which any may be named; empty for an innocent.
        cause: Why it stands still, or is slow, in plain words.
        source: Where people meet this.
        ranks: How many workers the job has.
        seconds: From its start, on a machine of two cores that has nothing else to do: how long at most until a fault
            stands still, or until an innocent has ended.
        command: The words after the launcher's options. In each, `{script}` is the script's path, `{scripts}` its
            folder, and `{python}` an interpreter that has torch.
    """

    name: str
    kind: Literal["fault", "innocent"]
    culprits: frozenset[int]
    cause: str
    source: str
    ranks: int = 3
    seconds: float = 20.0
    command: tuple[str, ...] = ("{script}",)

    @property
    def script(self) -> Path:
        """Where the script is."""
        return SCRIPTS / f"{self.name}.py"

    def words(self, python: str) -> list[str]:
        """The words after the launcher's options, with this interpreter."""
        values = {"{script}": str(self.script), "{scripts}": str(SCRIPTS), "{python}": python}
        return [_replace(word, values) for word in self.command]


def _replace(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _fault(
    name: str,
    culprits: set[int],
    cause: str,
    source: str,
    seconds: float = 20.0,
    command: tuple[str, ...] = ("{script}",),
) -> HeldOutCase:
    return HeldOutCase(name, "fault", frozenset(culprits), cause, source, seconds=seconds, command=command)


def _innocent(
    name: str, cause: str, source: str, seconds: float = 40.0, command: tuple[str, ...] = ("{script}",)
) -> HeldOutCase:
    return HeldOutCase(name, "innocent", frozenset(), cause, source, seconds=seconds, command=command)


def _in_bash(line: str) -> tuple[str, ...]:
    return ("--no-python", "bash", "-c", line)


SILENT_INPUT = _in_bash("tail -f /dev/null | {python} {script}")
"""Standard input that is open and says nothing: a terminal at which nobody sits."""

FAULTS: tuple[HeldOutCase, ...] = (
    _fault(
        "upload_at_exit_never_ends",
        {0},
        "the rank has finished, and its exit handler waits for an upload to a silent server",
        "experiment trackers",
    ),
    _fault(
        "asyncio_queue_of_failed_task",
        {0},
        "the rank's event loop waits for a queue whose producer task failed",
        "asyncio tasks whose exception nobody retrieves",
    ),
    _fault(
        "debugger_waits_for_client",
        {0},
        "a remote debugger on the rank waits for a client to attach",
        "debugpy.wait_for_client, remote_pdb",
    ),
    _fault(
        "training_child_spins",
        {2},
        "the rank's child, which trains, computes in a loop that does not end; the parent joins it",
        "mp.spawn below a launcher; a NaN in a loop's condition",
    ),
    _fault(
        "loader_process_reads_silent_server",
        {1},
        "the rank waits for a DataLoader process that waits for a server that is silent",
        "streaming datasets from object stores",
    ),
    _fault(
        "lock_kept_while_waiting_for_server",
        {2},
        "the rank holds a file lock, for which the others wait, and reads from a silent socket",
        "dataset caches with a lock around the download",
    ),
    _fault(
        "database_locked_by_open_transaction",
        {0, 2},
        "rank 0 waits for SQLite's lock, which rank 2 keeps in a transaction that it does not commit",
        "results and studies in one SQLite file",
    ),
    _fault(
        "sampler_that_rejects_everything",
        {2},
        "the rank draws samples in a loop that does not end",
        "rejection sampling, curricula, length filters",
    ),
    _fault(
        "one_receive_too_many",
        {2},
        "the rank waits to receive a message that nobody sends",
        "pipelines with one micro-batch more on one stage",
    ),
    _fault(
        "send_with_another_tag",
        {0, 2},
        "rank 0 sends with a tag for which rank 2 does not wait",
        "point-to-point after a resume",
    ),
    _fault(
        "broadcast_from_itself",
        {1},
        "the rank broadcasts from itself, and the others wait for rank 0",
        "`src=rank` where `src=0` was meant",
    ),
    _fault(
        "every_rank_receives_first",
        {0, 1, 2},
        "every rank waits to receive, and none sends",
        "hand-written rings",
    ),
)

INNOCENTS: tuple[HeldOutCase, ...] = (
    _innocent("all_wait_for_queued_work", "all ranks wait for a task, which comes", "brokers, on-line training"),
)

MORE_FAULTS: tuple[HeldOutCase, ...] = (
    # Threads of one rank.
    _fault(
        "semaphore_permits_leak",
        {0},
        "the rank waits for a permit of a semaphore that failed tasks did not give back",
        "bounds on saves and uploads in flight",
    ),
    _fault(
        "readers_never_let_the_writer_in",
        {1},
        "the rank waits until no reader is left, and a thread that died of an exception still counts as one",
        "hand-written readers-writer locks",
    ),
    _fault(
        "handler_logs_while_it_logs",
        {2},
        "a log handler waits for its own lock, since formatting a record logs again",
        "custom logging handlers, __str__ with side effects",
    ),
    _fault(
        "double_buffer_never_filled",
        {2},
        "the rank waits for a buffer that a thread, which has returned, was to fill",
        "double buffering with a pair of events",
    ),
    _fault(
        "timer_cancelled_by_clean_up",
        {1},
        "the rank waits for an event, and the timer that was to set it was cancelled",
        "threading.Timer and registries of timers",
    ),
    _fault(
        "pool_closed_over_endless_poller",
        {0},
        "the rank waits at the end of `with ThreadPoolExecutor` for a task that watches a folder for ever",
        "executors with a background task",
    ),
    _fault(
        "request_dropped_by_dispatcher",
        {2},
        "the rank waits for a future that its dispatcher thread dropped",
        "actors and batchers that answer with futures",
    ),
    _fault(
        "recorded_main_waits_in_a_callback",
        {0},
        "the rank waits on a condition in a call-back for an evaluation thread that has returned",
        "trainers' call-backs, below @record",
    ),
    _fault(
        "backward_waits_for_offloaded_activation",
        {2},
        "backward waits for an activation that a thread, which has returned, was to bring back",
        "activation offloading in a custom autograd function",
    ),
    # Services.
    _fault(
        "half_a_line_from_tracker",
        {2},
        "the rank waits for the rest of a line from a tracker that is silent",
        "line protocols over TCP without a timeout",
    ),
    _fault(
        "unix_socket_backlog_full",
        {1},
        "the rank waits to connect to a local socket whose server does not accept any more",
        "metrics and log agents on a Unix socket",
    ),
    _fault(
        "peer_stopped_reading_the_artifact",
        {0},
        "the rank waits to send to a server that has stopped reading",
        "uploads to a store that is over its quota",
    ),
    _fault(
        "blocking_pop_from_empty_broker",
        {2},
        "the rank waits for a task of a broker that has none",
        "BLPOP with timeout 0, Redis queues",
    ),
    _fault(
        "event_stream_of_keep_alives",
        {1},
        "the rank reads a stream that says only that it is alive",
        "server-sent events, watch APIs",
    ),
    _fault(
        "single_threaded_service_calls_itself",
        {2},
        "the rank waits for its own HTTP server, whose one thread waits for itself",
        "http.server.HTTPServer in a thread",
    ),
    _fault(
        "asyncio_event_of_cancelled_task",
        {1},
        "the rank's event loop waits for an event that a cancelled task was to set",
        "asyncio trainers that cancel all tasks",
    ),
    # Processes.
    _fault(
        "asyncio_child_that_idles",
        {0},
        "the rank awaits the end of a child that waits for ever",
        "asyncio.create_subprocess_exec",
    ),
    _fault(
        "background_job_keeps_the_pipe",
        {1},
        "the rank reads the output of a shell that has ended, and a job that it left behind keeps the pipe open",
        "subprocess.run(capture_output=True) of scripts with `&`",
    ),
    _fault(
        "pipe_end_left_open_in_parent",
        {2},
        "the rank waits for a dead child at a pipe whose other end it holds open itself",
        "multiprocessing.Pipe without close() in the parent",
    ),
    _fault(
        "environment_and_trainer_both_receive",
        {0},
        "the rank waits for an observation of a simulator that waits for `reset`",
        "vectorised environments with a process each",
    ),
    _fault(
        "simulator_left_before_it_was_ready",
        {1},
        "the rank waits for an event of a child that has ended with code 0",
        "simulators that find no free port",
    ),
    _fault(
        "training_child_wants_lock_of_dead_sibling",
        {0},
        "the rank's child, which trains, waits for a lock that a dead process holds",
        "mp.Process below a launcher, with a shared console lock",
        seconds=25.0,
    ),
    _fault(
        "loader_workers_meet_at_a_barrier",
        {1},
        "the rank waits for DataLoader processes, of which one waits for another that has ended",
        "iterable datasets whose workers are in step",
    ),
    _fault(
        "collate_never_fills_the_row",
        {0},
        "the rank waits for a DataLoader process that loops for ever",
        "sequence packing in collate_fn",
    ),
    # Files, signals, sleeps.
    _fault(
        "mkdir_lock_left_after_exception",
        {0},
        "the rank polls for a lock that it left behind itself",
        "locks made with mkdir or O_EXCL",
    ),
    _fault(
        "index_locked_by_rank_in_fifo",
        {1},
        "the rank holds a file lock, for which the others wait, and waits to write to a full pipe",
        "manifests under a lock, FIFOs of dashboards",
    ),
    _fault(
        "pause_until_a_signal_nobody_sends",
        {0},
        "the rank pauses until a signal that nobody sends",
        "schedulers' suspend and resume notices",
    ),
    _fault(
        "wrapped_rank_stops_itself",
        {2},
        "the rank, below a shell script, is stopped by a signal",
        "memory guards; jobs that start through run.sh",
        command=("--no-python", "{scripts}/run.sh", "{python}", "{script}"),
    ),
    _fault(
        "token_bucket_sleeps_for_weeks",
        {1},
        "the rank's training thread sleeps for weeks",
        "rate limiters with a rate near zero",
    ),
    # Loops and C.
    _fault(
        "merge_table_with_a_cycle",
        {2},
        "the rank follows a cycle in a table",
        "tokenizers' merges, trees from damaged files",
    ),
    _fault(
        "camera_driver_reads_with_gil",
        {2},
        "the rank reads in C from a device that is silent, and keeps the interpreter lock",
        "drivers bound without releasing the GIL",
    ),
    _fault(
        "native_mutex_locked_twice",
        {0},
        "the rank waits in C for a mutex that it holds itself",
        "call-backs from C libraries",
    ),
    # Collectives that do not match, and ranks that owe something.
    _fault(
        "budget_used_up_and_gone",
        {2},
        "the rank has ended with code 0, and the others poll for its report",
        "ranks with a time or token budget of their own",
    ),
    _fault(
        "norm_reduced_only_when_large",
        {1},
        "the rank alone is in a reduction of its gradient's norm",
        "collectives below a condition on a rank's own value",
    ),
    _fault(
        "rank_0_validates_through_the_wrapper",
        {0},
        "the rank alone is in the forward pass of DDP, which broadcasts buffers",
        "`if rank == 0: validate(ddp_model)` with batch norm",
    ),
    _fault(
        "non_finite_loss_skips_the_step",
        {2},
        "the rank left out an all-reduce, and is in the next gathering",
        "steps skipped at NaN by one rank",
    ),
    _fault(
        "token_not_passed_on",
        {1},
        "the rank did not send a message for which the next one waits, and is at the next all-reduce",
        "hand-written rings with an early return",
    ),
    _fault(
        "next_seed_awaited_by_one_rank",
        {1},
        "the rank alone waits for a broadcast",
        "prefetched broadcasts with async_op=True",
    ),
    _fault(
        "expert_without_tokens",
        {2},
        "the rank left out an all-to-all, and is in an all-reduce",
        "mixtures of experts with an empty expert",
    ),
    _fault(
        "counter_in_the_store_misses_one",
        {2},
        "the rank did not count itself at a barrier of the store, and is in the next epoch",
        "barriers made of TCPStore.add",
    ),
)

MORE_INNOCENTS: tuple[HeldOutCase, ...] = (
    # One rank computes.
    _innocent("rank_0_packs_an_export", "rank 0 serialises and compresses", "exports after the training"),
    _innocent("codebook_fitted_on_rank_2", "rank 2 computes in NumPy", "k-means for quantisers"),
    _innocent("vocabulary_counted_by_generators", "rank 1 computes through generators", "vocabularies, n-grams"),
    _innocent("draft_model_trained_by_one_rank", "rank 2 trains a model of its own", "distillation, draft models"),
    _innocent("async_handles_while_rank_0_prepares", "rank 0 computes before its part", "async_op and wait()"),
    _innocent("episodes_of_unequal_length", "rank 2 plays a long episode", "reinforcement learning"),
    _innocent("training_thread_beside_a_progress_bar", "rank 0 computes in its training thread", "progress bars"),
    # One rank waits for its own threads and processes, which work.
    _innocent("two_locks_behind_one_busy_thread", "rank 1 waits behind two locks for a busy thread", "caches"),
    _innocent("backward_reloads_from_slow_disk", "rank 2's backward waits for a slow thread", "saved_tensors_hooks"),
    _innocent("snapshot_on_a_timer", "rank 0 waits for an event of a timer", "periodic snapshots"),
    _innocent("simulation_polled_through_a_pipe", "rank 2 polls a pipe of a child that computes", "simulators"),
    _innocent("pool_with_slow_initialiser", "rank 2 waits for a pool whose process loads", "dictionaries, taggers"),
    _innocent("helper_process_loads_before_it_listens", "rank 1 retries until its helper listens", "reward models"),
    _innocent(
        "fifo_filled_by_a_side_car", "rank 0 reads a named pipe that fills slowly", "side-cars that decrypt or unpack"
    ),
    _innocent("loader_skips_to_where_it_was", "all ranks wait for loaders that read and drop", "resumed streams"),
    # One rank waits for a service, which answers.
    _innocent("judge_answers_in_a_pool", "rank 0 waits for slow answers in a pool", "language models as judges"),
    _innocent("json_lines_that_trickle", "rank 1 reads lines that come slowly", "annotations, preference pairs"),
    _innocent(
        "long_poll_for_a_release", "rank 2 asks again and again, each time for long", "registries with long polling"
    ),
    _innocent("asyncio_fetches_behind_a_semaphore", "rank 1 awaits slow answers", "asyncio.gather with a bound"),
    # Waits on purpose.
    _innocent("old_files_deleted_gently", "rank 0 deletes files with pauses", "shared file systems, below @record"),
    _innocent("waits_for_the_alarm_of_a_scheduler", "rank 0 waits for a signal, which comes", "shared machines"),
    _innocent("cools_down_below_a_limit", "rank 1 naps until a value in a file is low", "thermal guards"),
    _innocent("stale_lock_expires", "rank 1 polls until a lock file is old enough", "locks with an age limit"),
    _innocent("next_phase_at_a_given_time", "all ranks sleep until a given time", "power tariffs, quotas"),
    _innocent("first_forward_builds_tables", "all ranks compute in their first forward pass", "look-up tables, caches"),
    # Ranks wait for one another, by design.
    _innocent("staging_in_turns_through_mkdir", "ranks work in turns behind a lock", "staging on shared disks"),
    _innocent("relay_of_three_ranks", "each rank waits for the one before it", "filters in a row"),
    _innocent("count_down_in_the_store", "all ranks poll a counter of the store", "maintenance windows"),
    _innocent("one_rank_stages_in_before_it_joins", "ranks wait in init_process_group for rank 2", "staging in"),
    _innocent("join_of_uneven_inputs", "two ranks shadow rank 0, whose batches are slow", "DDP with Join"),
)

THIRD_FAULTS: tuple[HeldOutCase, ...] = (
    _fault(
        "shard_never_appears_for_loader_worker",
        {1},
        "a DataLoader worker of rank 1 looks for ever for a file that nobody writes",
        "streaming data sets made by another job",
        seconds=25.0,
    ),
    _fault(
        "lock_kept_by_thread_that_failed",
        {2},
        "a thread of rank 2 died of an exception between acquire and release of a lock, and the main "
        "thread waits for the lock",
        "statistics kept by hand in threads",
    ),
    _fault(
        "fork_while_thread_holds_lock",
        {0},
        "rank 0 forked while another thread held a lock, so the child waits for ever for its copy and "
        "rank 0 joins the child",
        "multiprocessing by fork beside threads",
    ),
    _fault(
        "two_locks_in_opposite_order",
        {1},
        "two threads of rank 1 take the same two locks in opposite order",
        "metric registries and checkpoint managers",
    ),
    _fault(
        "prefetch_consumer_died_and_queue_is_full",
        {0},
        "the writer thread of rank 0 returned after an error that was swallowed, and the main thread "
        "puts into the full queue",
        "background writers of results",
        seconds=25.0,
    ),
    _fault(
        "notify_came_before_wait",
        {2},
        "rank 2 begins to wait at a condition after the only notification was given",
        "home-made prefetching",
    ),
    _fault(
        "semaphore_slot_lost_on_bad_sample",
        {1},
        "rank 1 has lost all slots of a semaphore on broken samples, as they are not released on an error",
        "limits on decoded samples in memory",
    ),
    _fault(
        "thread_barrier_counts_one_too_many",
        {2},
        "three threads of rank 2 wait at a barrier for four",
        "threaded evaluation",
    ),
    _fault(
        "metrics_server_never_answers",
        {0},
        "rank 0 posts to a metrics server, a thread of its own, that never answers, without a timeout",
        "experiment tracking over HTTP",
    ),
    _fault(
        "subprocess_output_pipe_is_full",
        {1},
        "rank 1 waits for the end of a child that is blocked on its full output pipe, which nobody reads",
        "Popen.wait with stdout=PIPE",
        seconds=25.0,
    ),
    _fault(
        "background_grandchild_keeps_pipe_open",
        {2},
        "rank 2 reads the output of a shell to its end, but a background process of that shell keeps the pipe open",
        "subprocess.run with capture_output and an ampersand",
    ),
    _fault(
        "fifo_opened_without_other_end",
        {1},
        "rank 1 opens a named pipe for writing whose reading process has ended",
        "named pipes to loggers",
    ),
    _fault(
        "file_locked_twice_by_same_process",
        {0},
        "rank 0 locks a lock file that it has locked already by another descriptor",
        "flock or filelock around nested functions",
    ),
    _fault(
        "database_transaction_left_open",
        {1},
        "rank 1 left a write transaction open and went on, so others try for ever to get the lock of the database",
        "sqlite shared by several ranks",
    ),
    _fault(
        "rejection_sampling_never_accepts",
        {2},
        "rank 2 loops in Python for samples which its margin of more than 1 never accepts",
        "hard negative mining",
        seconds=25.0,
    ),
    _fault(
        "download_retried_for_ever",
        {0},
        "rank 0 tries again for ever to get a file that the server does not have",
        "downloads with endless retries",
        command=("--no-python", "nice", "-n", "1", "{python}", "-u", "{script}"),
    ),
    _fault(
        "regular_expression_that_backtracks",
        {1},
        "rank 1 matches a regular expression that needs exponential time on its text",
        "cleaning of raw text",
    ),
    _fault(
        "recursive_query_without_end",
        {2},
        "rank 2 runs a recursive database query over a cycle of parents that never ends",
        "label trees in sqlite",
    ),
    _fault(
        "rank_suspends_itself",
        {1},
        "rank 1 has stopped itself by SIGSTOP and nobody lets it go on",
        "pause files and suspended jobs",
    ),
    _fault(
        "early_stopping_decided_by_each_rank",
        {2},
        "rank 2 alone stops early and waits at the barrier of another group, while the others go on training",
        "early stopping on a local metric",
        seconds=25.0,
    ),
    _fault(
        "one_rank_has_fewer_batches",
        {2},
        "rank 2 has fewer batches than the others and polls the store for their end, while they wait for its gradients",
        "uneven data under DDP",
        seconds=25.0,
    ),
    _fault(
        "message_tags_do_not_match",
        {0, 1},
        "rank 0 waits for a message of rank 1 with another tag than the one rank 1 sends",
        "pipelines written by send and recv",
    ),
    _fault(
        "receives_from_wrong_neighbour",
        {1},
        "rank 1 reverses the direction of the ring one step before the others, so the messages do not meet",
        "ring exchange of activations",
    ),
    _fault(
        "no_sync_for_one_step_more",
        {0},
        "rank 0 no longer synchronizes in the middle, so it has ended and waits for the others in the "
        "store while they wait for gradients",
        "gradient accumulation with no_sync",
        seconds=25.0,
    ),
    _fault(
        "uploader_joined_at_exit_never_ends",
        {0},
        "rank 0 left its loop early and joins, in an atexit handler, a queue whose thread has ended without task_done",
        "checkpoint uploaders, exit handlers of trackers",
    ),
    _fault(
        "destructor_waits_for_its_thread",
        {1},
        "the destructor of a prefetcher of rank 1 joins a thread that is blocked on a full queue",
        "loaders with threads that are dropped early",
    ),
    _fault(
        "signal_handler_takes_lock_already_held",
        {2},
        "the signal handler of rank 2 takes a lock that the main thread, which it has interrupted, holds",
        "saving on preemption",
    ),
    _fault(
        "log_pipe_that_nobody_reads",
        {0},
        "the logging handler of rank 0 writes into a full pipe whose reading process sleeps for ever",
        "logging through a pipe",
    ),
    _fault(
        "awaited_future_is_never_resolved",
        {2},
        "rank 2 awaits a future whose answer was thrown away because its key has another type",
        "asyncio feature clients",
    ),
    _fault(
        "task_waits_for_task_in_same_small_pool",
        {1},
        "the tasks in the thread pool of rank 1 wait for tasks that find no free thread in the same pool",
        "nested use of a ThreadPoolExecutor",
        seconds=25.0,
    ),
    _fault(
        "pool_worker_was_killed",
        {2},
        "a worker of the process pool of rank 2 was killed, and Pool.map waits for ever for its result",
        "multiprocessing.Pool and the out-of-memory killer",
    ),
    _fault(
        "process_joined_before_its_queue_is_read",
        {0},
        "rank 0 joins a child that waits until its large result is read from the queue",
        "multiprocessing.Queue with join",
    ),
    _fault(
        "store_key_was_never_set",
        {0},
        "rank 0 could not save, swallowed the error and never set the key for which the others wait in the store",
        "announcing checkpoints by a store",
    ),
    _fault(
        "own_file_barrier_in_wrong_folder",
        {2},
        "rank 2 waits with its marker files in another folder than the others",
        "barriers made of files",
    ),
    _fault(
        "monitored_barrier_not_reached",
        {1},
        "rank 1 loops for ever over items that it puts back, and the others wait at a monitored barrier",
        "evaluation before a monitored barrier",
    ),
    _fault(
        "native_call_sleeps_with_interpreter_lock",
        {0},
        "rank 0 is in a C call without timeout that keeps the interpreter lock",
        "drivers and extensions called by ctypes",
    ),
    _fault(
        "parameter_server_drops_a_request",
        {0, 2},
        "the server on rank 0 does not answer a push of rank 2 that is not finite, and rank 2 waits for the answer",
        "parameter servers over send and recv",
    ),
    _fault(
        "flag_of_dead_child_is_polled",
        {2},
        "rank 2 polls a flag that its child, which died of an error, can no longer set",
        "shared values of multiprocessing",
    ),
    _fault(
        "worker_of_loader_is_stopped",
        {0},
        "a DataLoader worker of rank 0 is stopped by SIGSTOP",
        "memory guards, stopped workers",
        seconds=25.0,
    ),
    _fault(
        "loader_worker_filters_everything_out",
        {1},
        "the DataLoader worker of rank 1 goes round and round over data of which nothing passes its filter",
        "endless streams with a filter",
        seconds=25.0,
    ),
    _fault(
        "module_imported_by_thread_during_its_import",
        {2},
        "a module imported by rank 2 waits for a thread that imports the same module",
        "plugins that start threads on import",
    ),
    _fault(
        "print_into_pipe_of_pager",
        {2},
        "rank 2 prints into a full pipe whose reader in the wrapper shell has stopped reading",
        "output piped through a wrapper script",
        command=("--no-python", "bash", "{scripts}/print_into_pipe_of_pager.sh", "{python}", "{script}"),
    ),
    _fault(
        "waits_for_signal_that_was_not_sent",
        {1},
        "rank 1 waits in sigwait for a signal that its manager process did not send",
        "reloading by signals",
    ),
    _fault(
        "rank_left_while_others_wait_for_its_file",
        {2},
        "rank 2 has ended after fewer parts, and the others look for ever for its next file",
        "distributed inference by files",
    ),
    _fault(
        "thread_keeps_ended_rank_alive",
        {1},
        "rank 1 returned from its main function early and the interpreter waits for a thread that is no "
        "daemon, while the others wait for it in a collective",
        "watcher threads and early return",
    ),
    _fault(
        "sub_groups_made_in_another_order",
        {2},
        "rank 2 makes the two sub groups in the opposite order",
        "new_group in loops",
    ),
    _fault(
        "worker_process_asked_twice_answers_once",
        {1},
        "rank 1 waits for an answer to a reset that its environment process does not answer",
        "environments of reinforcement learning in processes",
    ),
    _fault(
        "reader_lock_upgraded_to_writer_lock",
        {1},
        "rank 1 waits to write until all readers have left, and is one of the readers itself",
        "caches with readers-writer locks",
    ),
)

THIRD_INNOCENTS: tuple[HeldOutCase, ...] = (
    _innocent(
        "evaluation_on_first_rank_only",
        "rank 0 evaluates in plain Python for 11 s, twice, and the others wait at a barrier",
        "evaluation on rank 0",
        seconds=45.0,
    ),
    _innocent(
        "singular_values_of_large_matrix",
        "rank 2 computes the singular values of a large matrix in one native call",
        "low-rank projection",
        seconds=40.0,
    ),
    _innocent(
        "download_comes_in_drops",
        "rank 0 downloads for 14 s from a slow server in its own process",
        "downloads on rank 0",
        seconds=35.0,
    ),
    _innocent(
        "server_answers_late",
        "rank 1 waits 13 s for the answer of a server process",
        "reward models as a service",
        seconds=35.0,
    ),
    _innocent(
        "external_compiler_runs_long",
        "rank 0 waits 12 s for a child process that computes",
        "building of extensions",
        seconds=35.0,
    ),
    _innocent(
        "waits_for_copy_by_shell_command",
        "all ranks wait 12 s for a shell command that mostly sleeps",
        "staging of data to a local disk",
        seconds=35.0,
    ),
    _innocent(
        "upload_thread_joined_after_each_epoch",
        "rank 1 waits three times about 9 s for its uploading thread",
        "uploads of checkpoints in the background",
        seconds=50.0,
    ),
    _innocent(
        "others_poll_for_file_of_first_rank",
        "rank 0 prepares data for 13 s and the others poll for the finished file",
        "preparation of data on rank 0",
        seconds=35.0,
    ),
    _innocent(
        "cache_built_by_one_rank_after_another",
        "the ranks build their caches under a file lock one after the other, 5 s each",
        "file locks around caches",
        seconds=35.0,
    ),
    _innocent(
        "key_in_store_comes_late",
        "rank 2 searches for 12 s, the others wait for its key in the store",
        "learning rate finders",
        seconds=35.0,
    ),
    _innocent(
        "service_unavailable_then_works",
        "rank 2 tries again for 11 s until its overloaded server works",
        "retries with growing delay",
        seconds=40.0,
    ),
    _innocent(
        "all_ranks_wait_for_rate_limit",
        "all ranks sleep for about 10 s until their rate limit permits more",
        "interfaces with a rate limit",
        seconds=40.0,
    ),
    _innocent(
        "ranks_start_loading_one_by_one",
        "the ranks load a checkpoint one after the other, the others wait at barriers for 13 s in all",
        "loading of large models",
        seconds=40.0,
    ),
    _innocent(
        "loader_worker_builds_index_first",
        "the DataLoader worker of rank 1 builds an index for 12 s before its first sample",
        "first batch of a data set",
        seconds=40.0,
    ),
    _innocent(
        "tokens_counted_by_process_pool",
        "rank 0 waits for the computing workers of a process pool",
        "tokenization in a pool",
        seconds=45.0,
    ),
    _innocent(
        "asyncio_client_waits_politely",
        "all ranks await answers for 9 to 15 s in an event loop",
        "generation services by asyncio",
        seconds=40.0,
    ),
    _innocent(
        "producer_thread_is_slow_to_fill_queue",
        "rank 0 waits for a batch of a thread that decrypts in native code for some 10 s",
        "producer threads",
        seconds=40.0,
    ),
    _innocent(
        "condition_notified_after_long_work",
        "the main thread of rank 1 waits 11 s at a condition for its computing thread",
        "evaluation in a thread",
        seconds=35.0,
    ),
    _innocent(
        "archives_compressed_in_one_call",
        "rank 0 compresses a checkpoint in one native call",
        "compression of checkpoints",
        seconds=45.0,
    ),
    _innocent(
        "rank_suspended_and_resumed",
        "rank 1 is stopped by SIGSTOP for 12 s and then resumed by SIGCONT",
        "suspended jobs",
        seconds=35.0,
    ),
    _innocent(
        "named_pipe_opened_late_by_writer",
        "all ranks wait 14 s to open a named pipe that their controllers write late",
        "control by named pipes",
        seconds=40.0,
    ),
    _innocent(
        "slow_rank_at_monitored_barrier",
        "rank 2 sorts a large list in one call, the others wait at a monitored barrier",
        "sorting before a barrier",
        seconds=45.0,
    ),
    _innocent(
        "rank_finishes_first_and_others_go_on",
        "rank 0 has ended and the others compute on without any communication",
        "inference after training",
        seconds=40.0,
    ),
    _innocent(
        "uneven_data_joined",
        "ranks 0 and 2 have joined and shadow the steps of rank 1, which waits 10 s for data",
        "uneven inputs with Join",
        seconds=40.0,
    ),
    _innocent(
        "long_accumulation_without_communication",
        "all ranks compute gradients for about 10 s without communication",
        "gradient accumulation over many batches",
        seconds=45.0,
    ),
    _innocent(
        "clusters_found_in_pure_python",
        "all ranks compute in plain Python for 12 s",
        "clustering between phases",
        seconds=40.0,
    ),
    _innocent(
        "polls_until_service_listens",
        "rank 0 tries for 12 s to connect to a service that starts slowly",
        "waiting for a server to start",
        seconds=35.0,
    ),
    _innocent(
        "modules_loaded_by_wrapper_first",
        "the wrapper sleeps for 6 to 12 s before each program starts, and 9 s after its end",
        "environment modules and log uploads in wrappers",
        seconds=50.0,
        command=("--no-python", "bash", "{scripts}/modules_loaded_by_wrapper_first.sh", "{python}", "{script}"),
    ),
    _innocent(
        "spawned_children_import_slowly",
        "rank 2 starts four processes by spawn one after the other and waits for each",
        "simulators in child processes",
        seconds=45.0,
    ),
    _innocent(
        "native_call_holds_interpreter_lock_for_some_time",
        "rank 0 is for 13 s in a C call that keeps the interpreter lock",
        "drivers called by ctypes",
        seconds=35.0,
    ),
    _innocent(
        "lock_held_for_whole_save",
        "the main thread of rank 2 waits 12 s for a lock that its saving thread holds",
        "saving in the background",
        seconds=40.0,
    ),
    _innocent(
        "analytic_query_takes_long",
        "rank 1 runs one long database query",
        "statistics from sqlite",
        seconds=45.0,
    ),
    _innocent(
        "heavy_regular_expression_ends_at_last",
        "rank 1 matches costly regular expressions that end after some seconds each",
        "filtering of text",
        seconds=45.0,
    ),
    _innocent(
        "first_stage_of_pipeline_is_slow",
        "the first stage computes for 11 s, twice, and the other stages wait to receive",
        "pipelines by send and recv",
        seconds=45.0,
    ),
    _innocent(
        "pause_between_phases_by_argument",
        "all ranks sleep for 14 s between two phases as an argument says",
        "pauses on purpose",
        seconds=35.0,
        command=("{script}", "--phases", "2", "--pause", "14", "--steps", "15"),
    ),
    _innocent(
        "log_pipe_is_read_late",
        "rank 1 is blocked on a full pipe for 14 s until its reader goes on",
        "logging through a pipe",
        seconds=40.0,
    ),
    _innocent(
        "markers_polled_with_growing_delay",
        "one rank shuffles data on disk for 9 s and the others poll for its marker file, twice",
        "barriers made of files",
        seconds=45.0,
    ),
)

FOURTH_FAULTS: tuple[HeldOutCase, ...] = (
    # Native code, the interpreter's lock, and loops without end.
    _fault(
        "deque_of_a_cycle_never_full",
        {2},
        "one call of C code consumes an endless iterator, and never gives up the interpreter",
        "shuffle buffers of a deque with maxlen over itertools.cycle",
        seconds=30.0,
    ),
    _fault(
        "exact_binomial_of_many_samples",
        {1},
        "one call of integer arithmetic that would take days, under the interpreter's lock",
        "exact tests with math.comb once the counts have grown",
        seconds=35.0,
    ),
    _fault(
        "key_derivation_with_broken_header",
        {0},
        "a native key derivation with two thousand million rounds, as a broken header says",
        "encrypted data with the parameters in the file",
        seconds=25.0,
    ),
    _fault(
        "switch_interval_of_a_day",
        {2},
        "a busy thread never gives the interpreter to the main thread, since the switch interval is a day",
        "sys.setswitchinterval, taken from a note on performance",
        seconds=25.0,
    ),
    _fault(
        "native_read_keeps_lock_from_its_writer",
        {0},
        "a native read holds the interpreter's lock, which the thread that would write needs",
        "drivers called through ctypes.PyDLL or extensions that do not release the lock",
        seconds=25.0,
    ),
    _fault(
        "open_hash_table_is_full",
        {2},
        "linear probing goes round a table without a free place",
        "hand-written hash tables for token ids",
        seconds=25.0,
    ),
    _fault(
        "folder_walk_follows_links",
        {0},
        "a walk that follows links goes through exponentially many paths",
        "data folders with `latest` links to themselves",
        seconds=20.0,
    ),
    _fault(
        "reads_on_after_child_has_died",
        {1},
        "a loop reads empty lines at the end of the pipe of a child that died, and waits for `ready`",
        "simulators and servers started as children",
        seconds=30.0,
    ),
    _fault(
        "end_of_file_compared_with_text",
        {2},
        'iter(read, "") over a binary file never meets its sentinel',
        "a check-sum function reused for binary files",
        seconds=25.0,
    ),
    # Asyncio.
    _fault(
        "asyncio_lock_taken_twice",
        {1},
        "a coroutine waits for an asyncio.Lock that it holds itself",
        "clients that refresh their token inside a request",
        seconds=25.0,
    ),
    _fault(
        "blocking_get_inside_coroutine",
        {0},
        "a blocking get in a coroutine stops the event loop that should fill the queue",
        "queue.Queue in place of asyncio.Queue",
        seconds=25.0,
    ),
    _fault(
        "asyncio_run_waits_for_timed_out_thread",
        {0},
        "asyncio.run joins a thread whose result was given up, which reads from a silent server",
        "asyncio.to_thread with wait_for",
        seconds=25.0,
    ),
    _fault(
        "cancellation_is_swallowed",
        {1},
        "wait_for cancels a task that swallows the cancellation and waits again",
        "retries with `except BaseException` or a bare `except`",
        seconds=25.0,
    ),
    _fault(
        "task_group_waits_for_its_heartbeat",
        {0},
        "a task group waits for a task without end",
        "heartbeats started in the task group of the work",
        seconds=25.0,
    ),
    _fault(
        "coroutine_sent_to_a_stopped_loop",
        {2},
        "the rank waits for a future of an event loop that was stopped",
        "background clients closed too early",
        seconds=30.0,
    ),
    # Connections and services.
    _fault(
        "pooled_connection_never_given_back",
        {2},
        "a blocking connection pool waits for the connection that an unread answer keeps",
        "urllib3 and requests with preload_content=False or stream=True",
        seconds=30.0,
    ),
    _fault(
        "length_in_the_other_byte_order",
        {2},
        "a length is read in the wrong byte order, so the rank waits for bytes that nobody sends",
        "hand-written protocols with struct",
        seconds=25.0,
    ),
    _fault(
        "grpc_waits_for_ready_channel",
        {2},
        "a call with wait_for_ready to a port on which nobody listens",
        "gRPC clients of reward and data services",
        seconds=25.0,
    ),
    _fault(
        "login_waits_for_browser_redirect",
        {0},
        "a tracker's login waits for a browser that nobody opens",
        "OAuth flows of trackers and clouds",
        seconds=30.0,
    ),
    _fault(
        "server_kept_by_an_idle_connection",
        {0, 2},
        "rank 2 waits for a server of rank 0 that serves one connection at a time, and rank 1's is idle but "
        "open; server and client may be named",
        "http.server.HTTPServer with keep-alive",
        seconds=25.0,
    ),
    _fault(
        "server_shut_down_from_its_own_thread",
        {0},
        "a server is shut down from its own handler and waits for itself; the main thread joins its thread",
        "socketserver: shutdown() must be called from another thread",
        seconds=25.0,
    ),
    _fault(
        "syslog_socket_is_full",
        {0},
        "sending to a Unix datagram socket blocks, as its reader does not read any more",
        "SysLogHandler and /dev/log",
        seconds=30.0,
    ),
    _fault(
        "second_store_at_the_wrong_port",
        {2},
        "rank 2 knocks at a port at which no store listens; rank 0's store waits for it, rank 1 waits in the "
        "all-reduce",
        "ports computed from ranks and nodes",
        seconds=25.0,
    ),
    # Processes, forks, pipes and terminals.
    _fault(
        "forked_child_of_openmp_parent",
        {1},
        "a forked child waits for OpenMP threads that it does not have; the rank waits for its result",
        "PyTorch operations in children forked after parallel work",
        seconds=30.0,
    ),
    _fault(
        "pool_error_that_cannot_be_unpickled",
        {0},
        "the thread that reads results died of an error that cannot be unpickled, so the map waits for ever",
        "exceptions with two arguments, raised in pools",
        seconds=30.0,
    ),
    _fault(
        "queue_item_lost_by_hard_exit",
        {1},
        "a child left by os._exit before its queue was written, and the rank waits for the item",
        "helpers that avoid exit handlers",
        seconds=30.0,
    ),
    _fault(
        "password_prompt_on_pty",
        {0},
        "a program asks for a password on a terminal that nobody is at",
        "rsync, ssh and git under a pseudo terminal",
        seconds=20.0,
    ),
    _fault(
        "child_answer_stays_in_its_buffer",
        {1},
        "the answer is in the buffer of a child that does not flush into a pipe",
        "filters and tokenizers driven line by line",
        seconds=25.0,
    ),
    _fault(
        "child_that_ignores_termination",
        {2},
        "the rank waits for a child that does not end on SIGTERM",
        "preview servers, simulators, side-cars",
        seconds=30.0,
    ),
    _fault(
        "one_stop_mark_for_two_workers",
        {0},
        "two workers wait for a stop mark each, one was sent, and the rank joins both",
        "multiprocessing queues with None as the end",
        seconds=35.0,
    ),
    _fault(
        "pool_of_threads_lost_in_fork",
        {2},
        "a forked helper waits for a thread pool whose threads stayed in the parent; the rank waits for its answer",
        "module-level executors",
        seconds=30.0,
    ),
    _fault(
        "forked_worker_without_the_loop_thread",
        {0},
        "a forked loader process waits for an event-loop thread that it does not have",
        "asynchronous file systems in data sets",
        seconds=30.0,
    ),
    _fault(
        "debugger_attached_and_forgotten",
        {1},
        "the rank is stopped by a debugger",
        "gdb -p, left attached",
        seconds=25.0,
    ),
    _fault(
        "terminal_stopped_by_control_s",
        {0},
        "the rank's output goes to a terminal that is stopped by Control-S",
        "tmux, screen and consoles",
        seconds=25.0,
    ),
    _fault(
        "shell_flock_under_own_lock",
        {0},
        "a child waits for the lock that its parent holds while it waits for the child",
        "scripts with flock(1), called from locked Python code",
        seconds=30.0,
    ),
    # Files, locks and leases.
    _fault(
        "file_lock_inherited_by_monitor",
        {0, 1},
        "a child of rank 0 has inherited its file lock and keeps it, and rank 1 waits for it; holder and "
        "waiter may be named",
        "fork while a file is locked with flock",
        seconds=25.0,
    ),
    _fault(
        "barrier_under_a_file_lock",
        {0},
        "rank 0 is at a barrier with the lock held that the others want before it",
        "downloads under the lock of a cache",
        seconds=20.0,
    ),
    _fault(
        "folder_is_never_quiet",
        {0},
        "the rank waits until nothing changes in a folder in which its own heartbeat writes",
        "polling for uploads and shared disks to settle",
        seconds=30.0,
    ),
    _fault(
        "record_locks_in_two_orders",
        {1, 2},
        "two ranks hold a record lock each and want the other's; they retry after the kernel's EDEADLK "
        "without letting go",
        "fcntl.lockf in retry loops",
        seconds=30.0,
    ),
    _fault(
        "two_files_locked_in_two_orders",
        {0, 2},
        "two ranks hold a file lock each and wait for the other's",
        "two caches with a lock each",
        seconds=30.0,
    ),
    _fault(
        "lease_renewed_by_idle_owner",
        {0, 1},
        "a lease is renewed by a thread of rank 0 that has no more use for it, and rank 1 waits for its end; "
        "owner and waiter may be named",
        "leader election and leases in files",
        seconds=30.0,
    ),
    _fault(
        "checkpoint_retried_on_full_disk",
        {2},
        "a checkpoint that cannot fit is tried again for ever",
        "full disks, quotas",
        seconds=30.0,
    ),
    _fault(
        "too_many_open_files",
        {1},
        "the rank has no more file descriptors and retries to open a file for ever",
        "shards that are never closed",
        seconds=25.0,
    ),
    # Threads.
    _fault(
        "predicate_compares_text_with_number",
        {1},
        "a condition is notified all the time, but its predicate can never be true",
        "versions that become text with a new server",
        seconds=25.0,
    ),
    _fault(
        "library_lock_kept_by_reading_thread",
        {1},
        "a thread reads from a silent socket under h5py's global lock, which the main thread wants",
        "HDF5 files over remote file objects",
        seconds=25.0,
    ),
    _fault(
        "arrow_thread_wants_lock_of_its_caller",
        {2},
        "Arrow's thread waits for a lock that the caller holds while it waits for Arrow",
        "Python file objects given to Arrow",
        seconds=30.0,
    ),
    _fault(
        "communication_hook_future_never_set",
        {2},
        "backward waits for the future of a communication hook whose thread died",
        "gradient compression in DDP hooks",
        seconds=25.0,
    ),
    _fault(
        "heartbeat_thread_of_one_rank_died",
        {1},
        "rank 1's heartbeat thread died, so the others' heartbeats wait and they pause; rank 1 waits in the all-reduce",
        "watchdogs with a process group of their own",
        seconds=30.0,
    ),
    # Collectives, messages and the store.
    _fault(
        "lbfgs_evaluates_closure_unequally",
        {1},
        "the closure with a collective is called once on rank 1 and more often on the others",
        "L-BFGS with averaged losses",
        seconds=25.0,
    ),
    _fault(
        "micro_batches_differ_between_stages",
        {1},
        "the middle stage handles one micro-batch fewer than its neighbours send and expect",
        "pipelines whose batch size changes",
        seconds=25.0,
    ),
    _fault(
        "collective_in_backward_of_frozen_layer",
        {1},
        "the backward pass of one rank has no collective, as its layer is frozen",
        "synchronised normalisation and partial freezing",
        seconds=25.0,
    ),
    _fault(
        "swapped_broadcasts",
        {1},
        "one rank takes part in two broadcasts in another order",
        "loops over dictionaries and sets",
        seconds=30.0,
    ),
    _fault(
        "after_you",
        {1, 2},
        "two ranks poll the store, each until the other does not want the disk any more; either may be named",
        "hand-written mutual exclusion in a store",
        seconds=30.0,
    ),
    _fault(
        "compare_and_set_never_matches",
        {1},
        "compare-and-set in the store gets an expected value that never is there",
        "bytes and text in TCPStore",
        seconds=30.0,
    ),
    # All ranks wrong in the same way.
    _fault(
        "hard_coded_four_ranks",
        {0, 1, 2},
        "all three wait for a marker of a fourth rank, which does not exist",
        "constants copied from another job",
        seconds=20.0,
    ),
    _fault(
        "nobody_thinks_it_is_the_leader",
        {0, 1, 2},
        "no rank thinks that it is the leader, so all wait for its work",
        "environment variables compared with numbers",
        seconds=20.0,
    ),
    _fault(
        "start_time_in_milliseconds",
        {0, 1, 2},
        "all wait for a moment that is thousands of years away",
        "timed starts and units",
        seconds=20.0,
    ),
)

FOURTH_INNOCENTS: tuple[HeldOutCase, ...] = (
    # Native code and long computing.
    _innocent(
        "corpus_counted_in_one_call",
        "one call of C code keeps the interpreter for long",
        "collections.Counter over token ids",
        seconds=100.0,
    ),
    _innocent(
        "key_derived_with_many_rounds",
        "a native key derivation takes long",
        "encrypted archives",
        seconds=80.0,
    ),
    _innocent(
        "signals_convolved_directly",
        "one native call correlates long signals",
        "NumPy without a Fourier transform",
        seconds=60.0,
    ),
    _innocent(
        "figures_drawn_after_the_epoch",
        "figures take long",
        "matplotlib on rank 0",
        seconds=100.0,
    ),
    _innocent(
        "probe_fitted_with_lbfgs",
        "an optimizer's step takes long",
        "L-BFGS on one rank",
        seconds=90.0,
    ),
    _innocent(
        "kernels_tuned_at_start",
        "all ranks compute for long without communication",
        "auto-tuning",
        seconds=80.0,
    ),
    _innocent(
        "profiled_while_it_evaluates",
        "a long evaluation, interrupted by timer signals",
        "sampling profilers",
        seconds=60.0,
    ),
    _innocent(
        "event_loop_blocked_by_tokenizing",
        "a coroutine computes for long",
        "asyncio jobs with synchronous work",
        seconds=70.0,
    ),
    # Programs and processes.
    _innocent(
        "datasets_mapped_by_processes",
        "two processes map a data set, slowly",
        "datasets.map with num_proc",
        seconds=60.0,
    ),
    _innocent(
        "managed_dictionary_with_many_writes",
        "two processes make many small round trips to a manager",
        "multiprocessing.Manager",
        seconds=80.0,
    ),
    _innocent(
        "child_saves_before_it_obeys",
        "a child saves for long before it ends on SIGTERM",
        "simulators",
        seconds=70.0,
    ),
    _innocent(
        "flock_programs_take_turns",
        "the ranks copy one after the other under flock(1)",
        "staging scripts",
        seconds=80.0,
    ),
    _innocent(
        "debugger_attached_for_a_moment",
        "a tool stops the rank by ptrace and detaches later",
        "gdb -p, strace",
        seconds=70.0,
    ),
    _innocent(
        "terminal_paused_and_resumed",
        "a terminal is stopped by Control-S and goes on by Control-Q",
        "tmux, screen and consoles",
        seconds=70.0,
    ),
    # Services and people.
    _innocent(
        "service_starts_cold",
        "a gRPC call waits until a service is ready",
        "reward models as services",
        seconds=50.0,
    ),
    _innocent(
        "too_many_requests_for_a_while",
        "the client sleeps as Retry-After says",
        "rate limits",
        seconds=70.0,
    ),
    _innocent(
        "mail_server_greets_late",
        "a mail server greets late",
        "reports by mail",
        seconds=70.0,
    ),
    _innocent(
        "person_logs_in_after_a_while",
        "a login waits for a browser, which comes",
        "OAuth flows",
        seconds=60.0,
    ),
    _innocent(
        "person_confirms_after_a_while",
        "a question on the standard input is answered late",
        "scripts that ask before they overwrite",
        seconds=50.0,
        command=_in_bash("(sleep 26; echo y) | {python} {script}"),
    ),
    _innocent(
        "idle_connection_times_out_at_last",
        "a server drops an idle connection after a while and serves the next",
        "http.server with keep-alive and a time-out",
        seconds=80.0,
    ),
    _innocent(
        "lease_runs_out",
        "a rank waits for a lease of a dead job to run out",
        "leases in files",
        seconds=70.0,
    ),
    _innocent(
        "room_made_on_the_disk",
        "a writer waits for room, which a cleaner makes",
        "quotas",
        seconds=80.0,
    ),
    _innocent(
        "manifest_of_slow_file_system",
        "a folder is listed slowly",
        "network file systems",
        seconds=70.0,
    ),
    # Threads, coroutines, messages.
    _innocent(
        "threads_meet_after_uneven_work",
        "threads wait at a barrier for a slow one",
        "threading.Barrier",
        seconds=80.0,
    ),
    _innocent(
        "predicate_true_at_last",
        "a condition's predicate becomes true late, after many notices",
        "replay buffers that fill slowly",
        seconds=80.0,
    ),
    _innocent(
        "asyncio_run_ends_with_its_thread",
        "asyncio.run lets a thread end whose result was given up",
        "asyncio.to_thread with wait_for",
        seconds=80.0,
    ),
    _innocent(
        "lightning_validates_on_first_rank",
        "a callback works long on rank 0, the others are at a barrier",
        "Lightning",
        seconds=100.0,
    ),
    _innocent(
        "accelerate_main_process_goes_first",
        "rank 0 prepares data, the others wait for it",
        "accelerate's main_process_first",
        seconds=90.0,
    ),
    _innocent(
        "weights_streamed_in_chunks",
        "messages come slowly from rank 0 to rank 2",
        "weights sent from an archive",
        seconds=80.0,
    ),
    _innocent(
        "random_back_off_finds_its_turn",
        "two ranks step back for each other until one finds its turn",
        "mutual exclusion in a store",
        seconds=80.0,
    ),
)

FIFTH_FAULTS: tuple[HeldOutCase, ...] = (
    _fault(
        "best_weights_kept_by_own_score",
        {2},
        "the rank's own validation did not get better, so it leaves out the gather of the best state and trains on",
        "best checkpoints by a metric of each rank: Lightning-AI/pytorch-lightning#19045, pytorch/pytorch#77562",
    ),
    _fault(
        "files_dealt_out_round_robin",
        {0},
        "the rank has one file more than the others, and reduces gradients while they wait in the barrier of the epoch",
        "shard files dealt out by rank: pytorch/pytorch#22584, pytorch/pytorch#38174",
    ),
    _fault(
        "batch_without_objects",
        {2},
        "the rank skips a step without boxes, so it is one reduction behind and comes first to the summary",
        "per-rank continue: NVIDIA-NeMo/Automodel#2468",
    ),
    _fault(
        "training_left_on_a_bad_record",
        {1},
        "the rank leaves the training loop because of a broken record, and gathers reports alone",
        "an exception that is logged and swallowed on one rank: pytorch/pytorch#47250",
    ),
    _fault(
        "resumes_where_a_checkpoint_exists",
        {0},
        "only this rank finds a checkpoint, starts at a later epoch, and is at the final reduce while the others train",
        "os.path.exists() decided by each rank: KempnerInstitute/KempnerForge#49",
    ),
    _fault(
        "loader_workers_report_statistics",
        {2},
        "the loader's workers put statistics into a queue that is full and is read after the epoch only",
        "bounded multiprocessing queues in datasets: pytorch/pytorch#2474",
    ),
    _fault(
        "annotator_answers_before_it_listens",
        {0},
        "the rank puts requests into a full queue while its helper puts answers into another full queue",
        "helper processes with two bounded queues; multiprocessing's programming guidelines",
    ),
    _fault(
        "replay_buffer_guarded_by_hand",
        {2},
        "the actor thread returned without releasing the lock of the replay buffer, which sample() wants",
        "Lock.acquire() without a with statement, in off-policy learning",
    ),
    _fault(
        "forgot_to_go_back_to_training_mode",
        {2},
        "the model of the rank is still in eval mode, so its normalisation leaves out the reduction of the statistics",
        "hand-written synchronised normalisation; pytorch/pytorch#38174 (SyncBatchNorm's collectives in forward)",
    ),
    _fault(
        "optimizer_state_collected_by_main",
        {0},
        "only this rank calls consolidate_state_dict(), which is a collective",
        "ZeroRedundancyOptimizer's documentation; pytorch/ignite#2623",
    ),
    _fault(
        "distributed_checkpoint_under_if_main",
        {0},
        "only this rank calls torch.distributed.checkpoint.save(), which is a collective",
        "saving under if is_main: deepspeedai/DeepSpeed#797, deepspeedai/DeepSpeed#801",
    ),
    _fault(
        "cached_features_found_by_first_rank",
        {0},
        "the rank finds the cache and returns before the barrier that would let the others in",
        "the barriers around cached features in example scripts of transformers; JIA-Lab-research/LongLoRA#45",
    ),
    _fault(
        "warned_of_preemption_alone",
        {2},
        "only this rank got the signal, left the loop and waits for the others in a gather",
        "preemption signals sent to one process: NVIDIA-NeMo/Automodel#3007",
    ),
    _fault(
        "dashboard_never_comes_up",
        {0},
        "the server that the rank started has died at once, and the rank tries to connect for ever",
        "side servers whose exit is not looked at",
    ),
    _fault(
        "smaller_batch_after_memory_error",
        {1},
        "after a memory error the rank runs more, smaller backward passes than the others, each with a reduction",
        "halving the batch size on one rank: mosaicml/composer#1319, mosaicml/composer#2117",
    ),
    _fault(
        "timer_synchronises_at_its_end",
        {0},
        "only this rank times its logging, with a timer that ends in a barrier",
        "timers with a barrier, as Megatron-LM has them, used under if rank == 0",
    ),
    _fault(
        "monitored_barrier_in_the_clean_up",
        {2},
        "a sample is missing; the rank waits in the barrier of its finally clause, while the others reduce gradients",
        "collectives in finally: pytorch/pytorch#53773, InternLM/xtuner#1852",
    ),
    _fault(
        "logging_step_counts_labelled_batches",
        {1},
        "the rank had a batch without labels, so its step counter lags and it gathers no metrics when the others do",
        "log_every_n_steps with a counter of each rank",
    ),
    _fault(
        "shard_without_validation_samples",
        {2},
        "the rank has no validation samples and returns before the gather",
        "evaluation sets smaller than the world: Chris-hughes10/pytorch-accelerated#53",
    ),
    _fault(
        "archive_download_stalls_half_way",
        {1},
        "the rank reads the rest of an archive from a server that sends nothing any more, without a timeout",
        "urlopen() without timeout; marin-community/levanter#578",
    ),
    _fault(
        "schedule_read_from_a_pipe",
        {1},
        "the control file of the rank is a FIFO that nobody writes",
        "control files in run folders",
    ),
    _fault(
        "records_queued_for_a_stopped_listener",
        {0},
        "the listener of the log queue was stopped and not started again, and the queue is full",
        "logging.handlers.QueueHandler with a bounded queue that waits",
    ),
    _fault(
        "workers_ask_their_parent",
        {2},
        "a worker of the loader asks its parent over a pipe, and the parent waits for that worker's batch",
        "datasets that talk to the training process",
    ),
    _fault(
        "both_hand_over_before_they_take",
        {0, 1},
        "two ranks send to each other first and receive afterwards",
        "pytorch/pytorch#11275, NVIDIA/nccl#479",
    ),
    _fault(
        "group_made_by_its_members",
        {0},
        "the rank leaves out new_group() for a group that it is no member of, so that its groups have other names",
        "the note of torch.distributed.new_group() that all ranks must call it",
    ),
    _fault(
        "initialiser_fails_each_time",
        {1},
        "each new worker of the pool ends in its initialiser, and the pool starts another one for ever",
        "python/cpython#87472",
    ),
    _fault(
        "waits_for_futures_that_were_cancelled",
        {0},
        "the rank waits for futures that were cancelled by the shutdown of their pool, of which wait() is never told",
        "python/cpython#92001, python/cpython#87893",
    ),
    _fault(
        "selects_on_a_pipe_already_read",
        {1},
        "the rank selects on a pipe whose lines are in its own read buffer already",
        "select() together with buffered readline()",
    ),
    _fault(
        "any_child_will_do",
        {2},
        "os.wait() waits for the resource monitor, as the converter had been collected by poll()",
        "os.wait() together with subprocess.Popen.poll()",
    ),
    _fault(
        "child_handler_collects_everyone",
        {0},
        "the handler of SIGCHLD calls waitpid() without WNOHANG and waits for a helper that serves on",
        "handlers of SIGCHLD without WNOHANG",
    ),
    _fault(
        "edge_triggered_reader_takes_one_chunk",
        {2},
        "the rank reads one chunk of an edge-triggered socket and waits for an edge that does not come",
        "epoll(7), on EPOLLET and reading until EAGAIN",
    ),
    _fault(
        "watch_set_after_the_file_came",
        {1},
        "the rank watches a folder for a file that was there before the watch",
        "inotify(7), on races at start",
    ),
    _fault(
        "counter_stops_growing_in_single_precision",
        {1},
        "the rank counts in float32, where adding one to 2**24 changes nothing",
        "pytorch/pytorch#34758, pytorch/pytorch#4877",
    ),
    _fault(
        "threshold_searched_by_bisection",
        {2},
        "the rank bisects an interval of float32 to a width that is less than their spacing",
        "bisection with an absolute tolerance",
    ),
    _fault(
        "zombie_counts_as_running",
        {2},
        "the rank waits until its forked child is gone, but never collects it, and kill(pid, 0) succeeds on a zombie",
        "contember/okena#166, xroche/httrack#1554",
    ),
    _fault(
        "waits_for_memory_in_the_wrong_unit",
        {0},
        "the rank compares mebibytes with bytes, and sleeps until that many are free",
        "polling /proc/meminfo before big allocations",
    ),
    _fault(
        "handshake_with_a_plain_server",
        {2},
        "the rank waits for the handshake of TLS from a server that speaks plain text and waits for more itself",
        "https where http is meant, without a timeout",
    ),
    _fault(
        "compressor_not_told_the_end",
        {1},
        "the rank reads the output of gzip, whose standard input it has not closed",
        "Popen.stdout.read() before Popen.stdin.close()",
    ),
    _fault(
        "lazy_values_under_one_lock",
        {0},
        "a lazy value is computed under the lock of its class, by threads that need the same lock for their parts",
        "python/cpython#87634, h5py/h5py#2064",
    ),
    _fault(
        "coordinator_expects_itself_to_connect",
        {0},
        "the rank accepts one connection more than there are clients",
        "multiprocessing.connection.Listener with a loop over the world size",
    ),
    _fault(
        "async_child_waited_before_it_is_read",
        {1},
        "the rank waits for the end of a child that writes into a full pipe",
        "asyncio's Process.wait(): bytedance/SandboxFusion#53",
    ),
    _fault(
        "coroutines_meet_one_short",
        {2},
        "one coroutine has failed, and the others wait for it at an asyncio.Barrier",
        "asyncio.gather() with return_exceptions=True",
    ),
    _fault(
        "collector_process_outlives_training",
        {1},
        "the training is over, but the rank waits at exit for a child that was never told to end",
        "multiprocessing joins its children at exit; transformers jobs that do not end: huggingface/transformers#17478",
    ),
    _fault(
        "ring_buffer_looks_full_and_empty",
        {1},
        "a ring buffer may hold as many frames as it has slots, and then looks empty to the rank and full to its child",
        "hand-written ring buffers in shared memory",
    ),
    _fault(
        "odd_rank_out_in_pairwise_exchange",
        {2},
        "with three ranks, the last one exchanges with a rank that has another partner",
        "gossip and pairwise averaging with an odd number of ranks",
    ),
    _fault(
        "digest_of_every_file_in_the_folder",
        {0},
        "the rank opens a FIFO of the run folder to read it",
        "hashlookup/hashlookup-forensic-analyser#8, MemPalace/mempalace#2221",
    ),
    _fault(
        "prefetch_budget_given_back_per_batch",
        {0},
        "each sample takes a permit, but only one is given back for a batch, so the loader's workers wait",
        "semaphores that bound the samples in flight",
    ),
    _fault(
        "validates_on_an_endless_stream",
        {0},
        "the rank validates on a stream that never ends",
        "endless generators around data loaders",
    ),
    _fault(
        "averaging_begins_later_after_a_restart",
        {2},
        "the rank averages less often than the others, and is at the final gather while they average",
        "PeriodicModelAverager with different warmup_steps",
    ),
    _fault(
        "doorbell_rung_before_it_was_reset",
        {1},
        "the rank clears a wake-up that was meant for it, and waits for the next one",
        "eventfd and events that are cleared too late",
    ),
)

FIFTH_INNOCENTS: tuple[HeldOutCase, ...] = (
    _innocent(
        "reranker_scores_on_main",
        "rank 0 computes scores while the others wait in a barrier",
        "evaluation on rank 0: pytorch/pytorch#54059",
    ),
    _innocent(
        "parts_uploaded_with_back_off",
        "rank 0 sleeps between the attempts to upload a part to a busy store",
        "uploads of checkpoints: huggingface/accelerate#2236",
    ),
    _innocent(
        "cache_locked_by_its_cleaner",
        "rank 1 waits for a file lock of a cleaner process, which ends",
        "shared caches with a lock file",
    ),
    _innocent(
        "results_database_is_being_backed_up",
        "rank 2 waits for SQLite's lock, which a backup holds for a while",
        "result databases with a busy timeout",
    ),
    _innocent(
        "shell_pipeline_prepares_the_split",
        "rank 0 waits for a shell pipeline that is slow",
        "data preparation by shell tools",
    ),
    _innocent(
        "checkpoint_through_a_throttled_file",
        "rank 0 writes a checkpoint at a limited rate",
        "limited bandwidth on shared file systems; instructlab/training#566",
    ),
    _innocent(
        "captions_fetched_politely",
        "rank 2 makes requests at a limited rate, with asyncio",
        "rate-limited services",
    ),
    _innocent(
        "workers_unpack_their_archives_first",
        "the loader's workers of rank 1 unpack archives from slow storage before the first sample",
        "lazily opened data in loader workers",
    ),
    _innocent(
        "starts_on_a_common_tick",
        "all ranks sleep until the next tick of a common clock",
        "rounds that start at given times",
    ),
    _innocent(
        "events_drained_before_the_next_stage",
        "rank 0 joins a queue whose writer thread is slow",
        "event writers with a queue",
    ),
    _innocent(
        "kernel_variants_timed_for_a_while",
        "rank 0 measures variants for a given time",
        "autotuning on one rank",
    ),
    _innocent(
        "pairs_merged_in_plain_python",
        "the last rank learns merges in pure Python, while the others wait for a key of the store",
        "tokenizers trained on one rank: hiyouga/LlamaFactory#2424",
    ),
    _innocent(
        "converters_two_at_a_time",
        "rank 1 waits for external programs, run two at a time",
        "conversion of recordings",
    ),
    _innocent(
        "teacher_sends_its_logits_late",
        "rank 0 waits for its teacher before it sends, while the others receive",
        "distillation with a remote teacher",
    ),
    _innocent(
        "learner_waits_for_long_episodes",
        "the actors play a long episode in real time, while the learner gathers",
        "actors and learners: THUDM/slime#1487",
    ),
    _innocent(
        "feature_service_is_restarted",
        "rank 1 tries to connect until its service is up again",
        "services that are restarted",
    ),
    _innocent(
        "export_is_polled_until_done",
        "rank 0 polls a service until an export is done",
        "export jobs of labelling services",
    ),
    _innocent(
        "uploader_is_given_up_in_the_end",
        "rank 0 joins a thread that hangs, with a timeout, and goes on without it",
        "bounded waits for uploads at the end",
    ),
    _innocent(
        "busy_cache_is_bypassed",
        "rank 1 waits for a lock with a timeout, and goes on without it",
        "lock timeouts with a fall-back",
    ),
    _innocent(
        "first_mirror_times_out",
        "rank 2 waits for a silent mirror until its timeout, and takes the next one",
        "mirrors of pretrained weights",
    ),
    _innocent(
        "generated_programs_run_with_a_limit",
        "rank 1 runs programs that do not end, each until its time limit",
        "rewards by running generated code",
    ),
    _innocent(
        "followers_look_for_the_next_plan",
        "rank 0 computes a plan, for which the others look into the store every two seconds",
        "plans published in the store",
    ),
    _innocent(
        "asynchronous_save_waits_for_the_one_before",
        "all ranks wait for the asynchronous checkpoint before, on a slow disk",
        "torch.distributed.checkpoint.async_save; pytorch/torchtitan#3065",
    ),
    _innocent(
        "vocabularies_merged_under_one_lock",
        "rank 1 joins processes that take turns under one lock",
        "managers of multiprocessing",
    ),
    _innocent(
        "environment_resets_slowly",
        "rank 2 waits for the reset of its environment in another process",
        "vectorised environments",
    ),
    _innocent(
        "two_slots_for_three_ranks",
        "two ranks run a tool, and the third polls for a free slot",
        "tools with a limited number of instances",
    ),
    _innocent(
        "recorder_finishes_its_work_first",
        "rank 1 waits for a child that finishes its work after SIGTERM",
        "recorders and profilers that end gracefully",
    ),
    _innocent(
        "records_checked_in_plain_python",
        "rank 2 compares all pairs of boxes in pure Python, while the others reduce",
        "checks of annotations on one rank: axolotl-ai-cloud/axolotl#921",
    ),
    _innocent(
        "prefetcher_reconnects_after_a_while",
        "the prefetch thread of rank 0 sleeps before it connects again",
        "streaming data sets that reconnect",
    ),
    _innocent(
        "covariance_whitened_on_rank_1",
        "rank 1 multiplies large matrices in NumPy, while the others wait in a broadcast",
        "whitening and preconditioners on one rank",
    ),
    _innocent(
        "licence_granted_after_a_while",
        "rank 2 reads from a licence server that has none free for a while",
        "floating licences",
    ),
    _innocent(
        "operator_pauses_one_rank",
        "rank 0 sleeps in a signal handler for a while",
        "pausing a job by a signal",
    ),
)

SIXTH_FAULTS: tuple[HeldOutCase, ...] = (
    _fault(
        "alarm_handler_puts_into_a_full_queue",
        {1},
        "the handler of an alarm puts into a full queue, whose reader has returned",
        "usage sampled by setitimer",
    ),
    _fault(
        "sigterm_handler_waits_for_the_loop",
        {2},
        "the handler of SIGTERM waits for an event of the loop that it interrupts",
        "graceful stops of trainers",
    ),
    _fault(
        "usr1_handler_joins_a_saver_that_wants_the_model",
        {0},
        "the handler of SIGUSR1 joins a thread that wants a lock of the main thread",
        "checkpoints on a scheduler's signal",
    ),
    _fault(
        "singleton_made_by_a_singleton",
        {0},
        "a constructor under the lock of all singletons asks for another singleton",
        "the singleton metaclass of many answers",
    ),
    _fault(
        "log_handler_posts_to_a_server_that_logs",
        {1},
        "a logging handler waits, with its lock held, for a server whose thread wants that lock",
        "logging over HTTP to oneself",
    ),
    _fault(
        "cleaner_waits_for_the_main_thread",
        {2},
        "the main thread waits for an event of a thread that joins the main thread",
        "cleaners that wait for the end",
    ),
    _fault(
        "scheduler_event_enters_itself_again",
        {1},
        "sched.run() does not end, as its event enters itself each time",
        "periodic events of sched",
    ),
    _fault(
        "event_replaced_while_it_is_awaited",
        {0},
        "a thread waits for an event that reset() has replaced, and the rank for the thread's batch",
        "reset() of feeds",
    ),
    _fault(
        "lock_given_to_a_thread_that_may_not_release_it",
        {2},
        "the rank waits for a task that wants an RLock, which another thread could not release",
        "locks handed to another thread",
    ),
    _fault(
        "notify_wakes_the_wrong_waiter",
        {1},
        "notify() woke another waiter of the same condition, and the rank's wait goes on",
        "one condition for two predicates",
    ),
    _fault(
        "coroutines_nest_one_semaphore",
        {0},
        "all permits are held by coroutines that wait for coroutines that need one",
        "nested requests with one limit",
    ),
    _fault(
        "asyncio_queue_joined_after_its_workers_were_cancelled",
        {2},
        "the rank joins an asyncio queue whose tasks were cancelled",
        "uploads with a time limit",
    ),
    _fault(
        "future_set_from_a_foreign_thread",
        {1},
        "a future was set by another thread without waking the event loop, which waits on",
        "call-backs of client libraries",
    ),
    _fault(
        "both_ends_wait_for_the_end_of_the_stream",
        {0},
        "a client and a server of one event loop read until the end of each other's stream",
        "write_eof() forgotten",
    ),
    _fault(
        "configuration_scattered_by_rank_0_alone",
        {0},
        "rank 0 scatters, while the others are in a broadcast",
        "a change on one side of an `if`",
    ),
    _fault(
        "results_of_an_empty_shard_are_not_sent",
        {0, 2},
        "rank 0 receives from any rank, and rank 2 has not sent",
        "evaluation of shards",
    ),
    _fault(
        "gathered_to_itself",
        {1},
        "rank 1 gathers at itself, and the others at rank 0",
        "a destination from the environment",
    ),
    _fault(
        "header_of_an_empty_tensor_without_body",
        {0, 1},
        "rank 1 receives a body that rank 0, which is ahead, has left out",
        "hand-written tensor protocols",
    ),
    _fault(
        "ring_attention_with_a_hop_too_few",
        {2},
        "rank 2 takes one hop less in a ring of isend and irecv",
        "ring attention with masks",
    ),
    _fault(
        "leader_takes_the_other_barrier",
        {0},
        "rank 0 is in barrier(), and the others in monitored_barrier()",
        "a barrier replaced in one place",
    ),
    _fault(
        "frozen_replica_is_not_wrapped",
        {2},
        "rank 2 goes on without DDP, in whose constructor the others are",
        "DDP only where something is trained",
    ),
    _fault(
        "remote_call_comes_back_under_the_lock",
        {1},
        "rank 1 waits for a remote call that waits for a lock of rank 1",
        "torch's RPC",
    ),
    _fault(
        "wall_time_limit_by_its_own_clock",
        {1},
        "rank 1 has left the loop by its own clock",
        "wall-time limits of a scheduler",
    ),
    _fault(
        "negatives_exchanged_by_its_own_dice",
        {2},
        "rank 2's dice differ, so that it is in another collective operation",
        "contrastive training",
    ),
    _fault(
        "open_file_lock_held_in_a_reduction",
        {2},
        "rank 2 reduces with an open-file-description lock held, for which rank 0 waits",
        "shared vocabularies",
    ),
    _fault(
        "build_token_is_not_given_back",
        {0},
        "the rank's compiler waits for a token of a job server, which a killed one took along",
        "compilers that share tokens",
    ),
    _fault(
        "child_signalled_before_it_listened",
        {2},
        "the rank's child pauses for a signal that came too early",
        "helpers started by a signal",
    ),
    _fault(
        "shell_prompt_looks_different",
        {1},
        "the rank reads a shell's terminal until a prompt that does not come",
        "shells driven by pexpect",
    ),
    _fault(
        "content_length_of_the_uncompressed_body",
        {0},
        "the rank reads a body that is shorter than announced, on a connection kept open",
        "compressing servers",
    ),
    _fault(
        "service_answers_only_between_steps",
        {0, 2},
        "rank 2 asks rank 0 within a step, and rank 0 answers only between steps",
        "services in the training loop",
    ),
    _fault(
        "event_counter_read_once_too_often",
        {2},
        "the rank reads an eventfd that an earlier read has emptied",
        "eventfd as a semaphore",
    ),
    _fault(
        "descriptor_is_not_armed_again",
        {1},
        "the rank polls a one-shot epoll entry that it has not armed again",
        "EPOLLONESHOT",
    ),
    _fault(
        "system_v_semaphore_is_never_raised",
        {0},
        "native code waits for a semaphore whose other process failed at start",
        "renderers beside the training",
    ),
    _fault(
        "native_barrier_of_three_threads",
        {2},
        "two threads wait at a pthread barrier for three",
        "native libraries with teams of threads",
    ),
    _fault(
        "message_of_a_type_nobody_sends",
        {1},
        "the rank receives a message of a type that nobody sends",
        "simulators by System V queues",
    ),
    _fault(
        "pool_asked_again_in_its_call_back",
        {0},
        "the pool's result thread waits for a result of the pool",
        "call-backs of multiprocessing",
    ),
    _fault(
        "children_joined_before_their_start_signal",
        {1},
        "the rank joins children that wait for an event which it sets afterwards",
        "benchmarks with a common start",
    ),
    _fault(
        "work_list_of_rank_0_runs_dry",
        {0, 1},
        "rank 1 waits for an item of rank 0's work list, which is empty",
        "work lists by BaseManager",
    ),
    _fault(
        "nested_group_expects_three",
        {0},
        "the rank's two processes wait for a third of their own group",
        "evaluation in processes of its own",
    ),
    _fault(
        "loader_worker_init_waits_for_the_first_batch",
        {1},
        "a DataLoader's processes wait for an event that is set after their first batch",
        "worker_init_fn",
    ),
    _fault(
        "sampler_wants_losses_of_batches_not_drawn",
        {0},
        "the batch sampler waits for a loss of a batch that is still to be drawn",
        "prioritised sampling",
    ),
    _fault(
        "statistics_gathered_at_exit_of_a_failed_rank",
        {2},
        "a failed rank gathers in its exit handler, while the others reduce",
        "exit handlers with collectives",
    ),
    _fault(
        "post_mortem_on_an_exception",
        {1},
        "the rank is at the prompt of a post-mortem debugger",
        "sys.excepthook = pdb",
        command=SILENT_INPUT,
    ),
    _fault(
        "reduction_repeated_after_a_local_error",
        {1},
        "rank 1 repeats a step's reduction after an error of its own",
        "retries around a step",
    ),
    _fault(
        "wrapper_waits_for_its_log_follower",
        {2},
        "rank 2's shell waits for a background process; all others have ended",
        "`wait` in scripts",
        command=_in_bash('tail -n 0 -f /dev/null & {python} {script}; if [ "$RANK" = 2 ]; then wait; else kill $!; fi'),
    ),
    _fault(
        "timer_joined_under_its_own_lock",
        {0},
        "the rank joins a timer with a lock held for which the timer waits",
        "flush timers",
    ),
    _fault(
        "log_followed_for_a_line_in_other_words",
        {1},
        "the rank polls a log for a line that does not come",
        "start-up of servers",
    ),
    _fault(
        "metrics_served_in_the_foreground",
        {0},
        "the rank serves a page for ever in the thread that trains",
        "serve_forever() without a thread",
    ),
    _fault(
        "spawned_program_opens_a_pipe_without_writer",
        {2},
        "the rank waits in the kernel for a spawned program that opens a FIFO nobody writes",
        "posix_spawn with file actions",
    ),
    _fault(
        "processor_limiter_died_while_the_rank_was_stopped",
        {0},
        "the rank is stopped by a limiter that has died",
        "cpulimit",
    ),
    _fault(
        "rank_frozen_by_its_control_group",
        {1},
        "the rank's control group is frozen",
        "freezers of node managers",
    ),
)

SIXTH_INNOCENTS: tuple[HeldOutCase, ...] = (
    _innocent(
        "alarm_bounds_each_download",
        "SIGALRM ends each read of a silent mirror",
        "time limits by signal.alarm",
    ),
    _innocent(
        "usr1_handler_saves_in_small_parts",
        "rank 0 saves in a signal handler, and sleeps between the parts",
        "checkpoints on a scheduler's signal",
    ),
    _innocent(
        "preempted_rank_waits_for_its_uploader",
        "rank 2 joins an uploader that sleeps between its parts",
        "the end after a preemption",
    ),
    _innocent(
        "event_set_by_a_timer",
        "rank 0 waits for an event that a timer will set",
        "threading.Timer",
    ),
    _innocent(
        "lock_kept_by_a_thread_that_waits_with_a_limit",
        "the lock's holder waits on a condition with a limit",
        "tables refreshed by a thread",
    ),
    _innocent(
        "future_of_a_sleeping_coroutine",
        "rank 2 waits for a coroutine that sleeps in another thread's loop",
        "run_coroutine_threadsafe",
    ),
    _innocent(
        "native_timer_calls_back",
        "a native thread, which no Python stack shows, will set the event",
        "device libraries with call-backs",
    ),
    _innocent(
        "pool_replaces_each_worker_after_its_task",
        "the pool's processes sleep and end, one after another",
        "maxtasksperchild",
    ),
    _innocent(
        "managed_object_answers_late",
        "a manager's process sleeps before it answers",
        "BaseManager",
    ),
    _innocent(
        "open_file_lock_of_another_job",
        "a process of another job holds the lock for a while",
        "OFD locks",
    ),
    _innocent(
        "plan_broadcast_when_its_planner_is_done",
        "rank 0 reads from a process that sleeps, and then broadcasts objects",
        "plans and broadcast_object_list",
    ),
    _innocent(
        "chain_of_stages_waits_for_a_limited_source",
        "the first stage waits on a condition with a limit, and the others receive",
        "pipelines by send and recv",
    ),
    _innocent(
        "judge_of_its_own_group_is_later",
        "rank 2 works with pauses in a group of its own",
        "groups of unequal speed",
    ),
    _innocent(
        "buffered_records_are_flushed_slowly",
        "a logging handler may send one record each second",
        "MemoryHandler",
    ),
    _innocent(
        "exit_handler_drains_the_event_queue",
        "rank 0's exit handler joins a queue that is emptied slowly",
        "queues joined at exit",
    ),
    _innocent(
        "thread_imports_what_the_loop_needs",
        "rank 2 waits for an import in another thread that sleeps",
        "lazy imports",
    ),
    _innocent(
        "loader_workers_wait_for_a_lock_of_another_job",
        "the DataLoader's processes wait for a lock of another job",
        "shards that are rewritten",
    ),
    _innocent(
        "stopped_child_is_given_up",
        "rank 1 waits with a limit for a child that is stopped",
        "external tools",
    ),
    _innocent(
        "ticks_of_an_interval_timer",
        "rank 0 pauses until the next alarm, six times",
        "setitimer",
    ),
    _innocent(
        "signal_awaited_from_a_helper",
        "rank 2 waits in sigwait for a signal of its child",
        "sigwait",
    ),
    _innocent(
        "child_awaited_by_its_descriptor",
        "rank 1 waits in a selector for a child that sleeps",
        "pidfd",
    ),
    _innocent(
        "event_counter_raised_by_a_child",
        "rank 0 reads an eventfd that a child will raise",
        "eventfd",
    ),
    _innocent(
        "helper_registers_after_a_while",
        "rank 2 accepts a connection of a child that comes up slowly",
        "helpers that register",
    ),
    _innocent(
        "datagram_repeated_until_answered",
        "rank 1 repeats a datagram each 3.5 s until it is answered",
        "protocols over UDP",
    ),
    _innocent(
        "tasks_wait_for_a_stop_with_a_limit",
        "the tasks of a pool pace themselves by Event.wait(limit)",
        "polite probes",
    ),
    _innocent(
        "system_v_semaphore_raised_by_a_child",
        "rank 2 waits in native code for a semaphore that a child will raise",
        "renderers beside the training",
    ),
    _innocent(
        "spawned_program_waits_for_its_late_writer",
        "rank 1 waits in the kernel for a spawned program whose input comes late",
        "posix_spawn with file actions",
    ),
    _innocent(
        "remote_function_takes_long",
        "rank 1 waits for a remote function of rank 2, which sleeps",
        "torch's RPC",
    ),
    _innocent(
        "nested_group_evaluates",
        "rank 0 waits for two processes with a group of their own, one of which sleeps",
        "evaluation in processes of its own",
    ),
    _innocent(
        "scheduler_runs_to_its_last_event",
        "rank 1 runs sched until it is empty",
        "sched",
    ),
    _innocent(
        "lock_of_a_child_that_writes",
        "rank 2 waits for a multiprocessing lock of a child that sleeps",
        "locks between processes",
    ),
    _innocent(
        "event_set_by_a_child_process",
        "rank 0 waits for a multiprocessing event that a child will set",
        "environments that come up",
    ),
    _innocent(
        "child_marks_its_tasks_as_done_late",
        "rank 1 joins a queue whose child sleeps for each task",
        "JoinableQueue",
    ),
    _innocent(
        "event_set_by_a_signal_handler",
        "rank 2 waits for an event that a signal's handler will set",
        "operators' signals",
    ),
    _innocent(
        "coroutine_gives_up_after_its_limit",
        "rank 0 waits in asyncio.wait_for with a limit",
        "discovery of peers",
    ),
    _innocent(
        "wrapper_ships_the_log_afterwards",
        "rank 2's shell sleeps after the training has ended",
        "scripts around the training",
        command=_in_bash('{python} {script}; if [ "$RANK" = 2 ]; then sleep 15; fi'),
    ),
    _innocent(
        "record_lock_of_a_forked_writer",
        "a child of rank 1 holds a record lock and sleeps",
        "indexes appended to by children",
    ),
    _innocent(
        "frozen_and_thawed_by_the_node",
        "rank 0's control group is frozen for 12 s",
        "freezers of node managers",
    ),
)

SEVENTH_FAULTS: tuple[HeldOutCase, ...] = (
    _fault(
        "converter_asks_before_it_overwrites",
        {1},
        "rank 1 waits for a child that waits for a line which rank 1 never writes",
        "ffmpeg and other tools started without -y",
    ),
    _fault(
        "managed_lock_of_a_killed_worker",
        {2},
        "rank 2 wants a manager's lock whose owner, its child, was killed",
        "multiprocessing.Manager and the out-of-memory killer",
    ),
    _fault(
        "reply_without_the_separator",
        {0},
        "rank 0 reads until a line feed that its server does not send",
        "asyncio.StreamReader.readuntil",
    ),
    _fault(
        "heartbeat_told_to_stop_after_its_pool",
        {1},
        "rank 1 leaves the pool's block, which waits for a task that ends only after it",
        "ThreadPoolExecutor as a context",
    ),
    _fault(
        "ready_flag_in_a_private_copy",
        {0},
        "rank 0 looks at a flag that its child sets in its own copy",
        "tensors without share_memory_",
    ),
    _fault(
        "dataset_lock_copied_into_loader_workers",
        {2},
        "the workers of rank 2's loader inherited a lock that nobody can release",
        "DataLoader forked beside a thread",
    ),
    _fault(
        "collate_waits_for_a_thread_of_the_parent",
        {1},
        "the worker of rank 1's loader waits for a thread that exists in its parent only",
        "DataLoader with num_workers > 0 on one node",
    ),
    _fault(
        "loader_rebuilt_for_a_damaged_scan",
        {2},
        "rank 2 builds its loader again for ever, whose worker fails at the same scan each time",
        "retries around DataLoader",
    ),
    _fault(
        "training_thread_raised_and_main_waits",
        {1},
        "rank 1's training thread has failed, and its main thread waits for its event",
        "training in a thread",
    ),
    _fault(
        "receive_posted_for_a_message_nobody_sends",
        {0, 1},
        "rank 0 waits for a message that rank 1 does not send any more",
        "irecv and a condition on one side only",
    ),
    _fault(
        "key_waited_for_under_another_prefix",
        {2},
        "rank 2 waits for a key of the store under another prefix than the others",
        "PrefixStore by release",
    ),
    _fault(
        "rendezvous_file_in_its_own_scratch",
        {1},
        "rank 1 waits at another rendezvous file than the others",
        "init_method=file:// and a node's own scratch",
    ),
    _fault(
        "soft_lock_of_an_earlier_run",
        {0},
        "rank 0 waits for a lock file that a dead run left behind",
        "SoftFileLock of filelock",
    ),
    _fault(
        "licence_server_does_not_accept",
        {2},
        "rank 2 connects to a server that accepts nobody",
        "socket.create_connection without a limit",
    ),
    _fault(
        "clock_server_drops_the_datagram",
        {0},
        "rank 0 waits for an answer to a lost datagram",
        "UDP without a limit",
    ),
    _fault(
        "lock_in_the_store_held_over_a_reduction",
        {1, 2},
        "rank 1 holds a lock in a reduction; rank 2 wants the lock before it",
        "locks by compare_set",
    ),
    _fault(
        "upload_compared_with_quoted_checksum",
        {0},
        "rank 0 waits for two checksums to be equal that never are",
        "the ETag of object stores",
    ),
    _fault(
        "tokenizer_child_stopped_by_its_terminal",
        {1},
        "rank 1 reads from a child that is stopped",
        "background programs that read the terminal",
    ),
    _fault(
        "breakpoint_when_the_loss_is_high",
        {2},
        "rank 2 is at a breakpoint whose input is silent",
        "breakpoint() left in the code",
        command=SILENT_INPUT,
    ),
    _fault(
        "key_of_a_million_bits",
        {2},
        "rank 2 computes a power for hours, and keeps the interpreter lock",
        "pow with three arguments",
    ),
    _fault(
        "cache_evicted_while_it_is_locked",
        {1},
        "a finalizer on rank 1 wants the lock that its own thread holds",
        "weakref.finalize and the collector",
    ),
    _fault(
        "destructor_ends_with_a_barrier",
        {1},
        "rank 1's trainer is kept alive and misses the barrier in its destructor",
        "collective operations in __del__",
    ),
    _fault(
        "queue_joined_without_task_done",
        {0},
        "rank 0 joins a queue one of whose items is never marked as done",
        "queue.Queue.join",
    ),
    _fault(
        "children_barrier_counts_their_parent",
        {2},
        "rank 2 joins children who wait at a barrier for one who never comes",
        "multiprocessing.Barrier",
    ),
    _fault(
        "notified_on_its_own_copy_of_the_condition",
        {1},
        "rank 1 waits on a condition of which only a copy was notified",
        "copy.deepcopy of channels",
    ),
    _fault(
        "log_handler_reads_state_under_its_lock",
        {0},
        "two threads of rank 0 hold the log handler's lock and the state's, and want the other",
        "logging handlers with locks",
    ),
    _fault(
        "evaluator_serves_until_told",
        {2},
        "rank 2 waits for a call that tells it to stop, and nobody makes it",
        "torch.distributed.rpc",
    ),
    _fault(
        "empty_batch_skips_a_sharded_step",
        {1},
        "rank 1 is at the barrier and not in the gathering of the sharded weights",
        "FSDP2 with an empty batch",
    ),
    _fault(
        "auxiliary_head_used_by_two",
        {2},
        "rank 2 left a bucket of gradients unreduced and gathers the results",
        "DistributedDataParallel with unused parameters",
    ),
    _fault(
        "barrier_inside_join",
        {1},
        "rank 1 has no batches left and takes no part in a barrier that is not joined",
        "Join of uneven inputs",
    ),
    _fault(
        "barrier_of_a_manager_after_one_left",
        {2},
        "rank 2 has ended and never comes to the barrier",
        "BarrierProxy between ranks",
    ),
    _fault(
        "ring_of_pair_groups",
        {0, 1, 2},
        "each rank is in the group of another pair",
        "averaging among neighbours",
    ),
    _fault(
        "forgot_the_group_argument",
        {1},
        "rank 1 reduces among all instead of in its pair",
        "a missing group=",
    ),
    _fault(
        "own_queue_is_too_small",
        {1},
        "rank 1 puts more into a bounded queue than it takes, with nobody to take it",
        "queue.Queue(maxsize)",
    ),
    _fault(
        "request_stays_in_the_write_buffer",
        {0},
        "rank 0 waits for the answer to a request that it did not flush",
        "socket.makefile",
    ),
    _fault(
        "header_read_with_native_padding",
        {2},
        "rank 2 reads more bytes than its writer sends",
        "struct without a byte order",
    ),
    _fault(
        "generation_never_ends_its_sentence",
        {1},
        "rank 1 generates tokens without end",
        "generation without a greatest length",
    ),
    _fault(
        "parent_keeps_the_lock_its_child_wants",
        {0},
        "rank 0 joins a child that wants a lock which rank 0 holds",
        "multiprocessing.Lock",
    ),
    _fault(
        "tasks_meet_in_too_small_a_pool",
        {1},
        "two tasks of rank 1's pool wait at a barrier for a third that finds no thread",
        "ThreadPoolExecutor and threading.Barrier",
    ),
    _fault(
        "weights_gathered_for_the_log_by_rank_0",
        {0},
        "rank 0 alone gathers a sharded weight",
        "DTensor.full_tensor under if rank == 0",
    ),
    _fault(
        "asks_whether_to_resume",
        {0},
        "rank 0 waits for a line of a silent input",
        "input() in a batch job",
        command=SILENT_INPUT,
    ),
    _fault(
        "training_piped_through_tee",
        {1},
        "rank 1 joins a thread that waits for an item which nobody puts",
        "python train.py | tee log",
        command=_in_bash("{python} -u {script} 2>&1 | tee /dev/null"),
    ),
    _fault(
        "starts_itself_again_as_a_child",
        {2},
        "rank 2's child has taken all permits of a semaphore and wants one more",
        "programs that start themselves again",
    ),
    _fault(
        "compiled_loop_never_converges",
        {2},
        "rank 2 is in a native loop that never ends, and keeps the interpreter lock",
        "numba and numbers that are none",
    ),
    _fault(
        "metric_computed_on_the_main_rank_only",
        {0},
        "rank 0 alone gathers for its metric",
        "torchmetrics under if rank == 0",
    ),
    _fault(
        "everyone_awaited_by_the_main_process",
        {0},
        "rank 0 alone waits for everyone",
        "accelerate under is_main_process",
    ),
    _fault(
        "broker_that_never_comes_up",
        {0},
        "rank 0 polls without a limit a broker that is not there",
        "confluent_kafka",
    ),
    _fault(
        "progress_bar_lock_of_a_killed_worker",
        {1},
        "rank 1 wants the progress bar's lock, whose owner was killed",
        "tqdm in several processes",
    ),
    _fault(
        "every_rank_asks_a_silent_parameter_service",
        {0, 1, 2},
        "all ranks wait for the answer of a service that gives none",
        "a shared service without a limit",
    ),
    _fault(
        "reports_before_it_averages",
        {2},
        "rank 2 gathers objects while the others reduce",
        "nodes with another version of the code",
    ),
    _fault(
        "metric_missing_in_one_dictionary",
        {1},
        "rank 1 is at the barrier while the others reduce one metric more",
        "metrics reduced one by one",
    ),
    _fault(
        "evaluation_counted_from_the_resumed_step",
        {0},
        "rank 0 evaluates a step before the others",
        "a step counter that is off by one",
    ),
)

SEVENTH_INNOCENTS: tuple[HeldOutCase, ...] = (
    _innocent(
        "shards_pickled_with_the_interpreter_lock",
        "rank 0 pickles for 13 s",
        "pickle of large states",
    ),
    _innocent(
        "constants_printed_with_many_digits",
        "rank 2 is in one native call of many seconds",
        "str of huge integers",
    ),
    _innocent(
        "file_lock_of_a_neighbour_job_is_freed",
        "rank 2 waits 22 s for another job's lock",
        "filelock around caches",
    ),
    _innocent(
        "requests_of_two_threads_to_a_slow_service",
        "rank 1 waits for 40 requests of 1 s, two at a time",
        "requests in a thread pool",
    ),
    _innocent(
        "hedged_requests_of_a_slow_replica",
        "rank 0 waits twice for 8 s in its event loop",
        "asyncio.wait for the first",
    ),
    _innocent(
        "loader_workers_decode_slowly",
        "each batch of rank 1 takes 8 s to decode",
        "video in DataLoader workers",
    ),
    _innocent(
        "collate_reads_from_a_cold_cache",
        "rank 2's loader waits 12 s for a cache server",
        "collate functions that call a service",
    ),
    _innocent(
        "children_meet_after_unequal_work",
        "rank 1 joins children, the last of which takes 15 s",
        "multiprocessing.Barrier",
    ),
    _innocent(
        "shared_memory_filled_by_a_slow_producer",
        "rank 0 polls shared memory for 15 s",
        "SharedMemory and a flag",
    ),
    _innocent(
        "sent_to_a_receiver_with_limited_bandwidth",
        "rank 0 sends for 15 s",
        "uploads with a bandwidth limit",
    ),
    _innocent(
        "whole_job_is_paused_for_a_snapshot",
        "all ranks are stopped for 10 s and go on",
        "snapshots of virtual machines",
    ),
    _innocent(
        "breakpoint_answered_after_a_while",
        "rank 1 is at a breakpoint for some seconds, until a person answers",
        "pdb",
        seconds=60.0,
        command=_in_bash("(sleep 30; echo c; sleep 1) | {python} {script}"),
    ),
    _innocent(
        "replica_on_a_slow_core",
        "rank 2 takes three times as long in each step",
        "a slow core",
    ),
    _innocent(
        "one_rank_renders_in_each_step",
        "rank 1 renders for 6 s in each step",
        "simulators beside training",
    ),
    _innocent(
        "trainer_started_as_a_child_evaluates",
        "rank 0's child evaluates for 16 s",
        "launching scripts",
    ),
    _innocent(
        "sharded_weights_written_slowly_by_rank_0",
        "rank 0 writes for 15 s",
        "checkpoints of FSDP2",
    ),
    _innocent(
        "server_waits_in_shutdown_for_its_clients",
        "rank 0 serves its clients' calls in its shut-down for 20 s",
        "parameter servers by RPC",
    ),
    _innocent(
        "last_test_by_the_first_rank_alone",
        "rank 0 tests for 20 s after the others ended",
        "a last evaluation",
    ),
    _innocent(
        "answers_questions_that_come_seldom",
        "rank 0 waits 9 s for each question, and the others for rank 0",
        "inference that is served by a job",
    ),
    _innocent(
        "settings_searched_by_the_first_rank",
        "rank 0 searches for 19 s before the first broadcast",
        "search of hyper-parameters",
    ),
    _innocent(
        "samples_sorted_in_one_call",
        "rank 1 sorts for some seconds in one native call",
        "length-sorted batches",
    ),
    _innocent(
        "zombies_are_left_while_it_evaluates",
        "rank 2 computes for 18 s, and has five ended children",
        "subprocess.Popen that is not waited for at once",
    ),
    _innocent(
        "log_queue_joined_until_it_is_written",
        "rank 1 joins a queue for 16 s that its writer empties",
        "queue.Queue.join",
    ),
    _innocent(
        "large_tensors_reduced_for_long",
        "all ranks wait for 120 large reductions that go on",
        "gradients over a slow network",
    ),
    _innocent(
        "features_computed_by_joblib",
        "rank 0 waits 14 s for its processes",
        "joblib",
    ),
    _innocent(
        "model_exported_before_the_next_epoch",
        "rank 0 traces for 14 s",
        "torch.export",
    ),
    _innocent(
        "resolver_answers_the_third_datagram",
        "rank 2 waits 12 s, and is answered",
        "DNS with retries",
    ),
    _innocent(
        "pool_rebuilt_once_after_a_crash",
        "rank 1 pauses 15 s after a worker of its pool died, and goes on",
        "BrokenProcessPool",
    ),
    _innocent(
        "crossed_locks_given_up_after_a_limit",
        "two threads of rank 0 want each other's lock; one gives up after 12 s",
        "lock.acquire(timeout)",
    ),
    _innocent(
        "dashboard_thread_beside_a_long_export",
        "rank 2 writes a table for 15 s beside an idle server",
        "http.server in a thread",
    ),
    _innocent(
        "idle_helpers_beside_a_slow_rank",
        "rank 0 computes for 16 s beside idle threads",
        "helper threads",
    ),
    _innocent(
        "prefetcher_paused_during_evaluation",
        "rank 1 computes for 15 s and has stopped its own child",
        "SIGSTOP and SIGCONT",
    ),
    _innocent(
        "futures_awaited_with_progress_messages",
        "rank 1 waits 18 s for its downloads, in turns of 3 s",
        "concurrent.futures.wait",
    ),
    _innocent(
        "kernel_compiled_inside_of_the_process",
        "rank 2 compiles for many seconds",
        "numba with large functions",
        seconds=100.0,
    ),
    _innocent(
        "cycles_collected_with_a_frozen_interpreter",
        "rank 0 collects cycles for 12 s",
        "gc.collect",
    ),
    _innocent(
        "all_ranks_parse_for_a_while",
        "all ranks compute for 17 s and more without meeting",
        "parsing before an epoch",
    ),
    _innocent(
        "shards_reserved_in_the_store_one_by_one",
        "one rank works 14 s on the last shard; the others look at the counter",
        "dynamic sharding by the store",
    ),
)

MOVED = frozenset(
    (
        "all_wait_for_queued_work",
        "asyncio_child_that_idles",
        "asyncio_queue_of_failed_task",
        "broadcast_from_itself",
        "budget_used_up_and_gone",
        "checkpoint_retried_on_full_disk",
        "child_that_ignores_termination",
        "collate_never_fills_the_row",
        "collate_reads_from_a_cold_cache",
        "collective_in_backward_of_frozen_layer",
        "counter_in_the_store_misses_one",
        "crossed_locks_given_up_after_a_limit",
        "database_locked_by_open_transaction",
        "database_transaction_left_open",
        "debugger_waits_for_client",
        "every_rank_receives_first",
        "grpc_waits_for_ready_channel",
        "hedged_requests_of_a_slow_replica",
        "idle_connection_times_out_at_last",
        "judge_of_its_own_group_is_later",
        "lbfgs_evaluates_closure_unequally",
        "loader_process_reads_silent_server",
        "loader_worker_filters_everything_out",
        "lock_kept_while_waiting_for_server",
        "log_queue_joined_until_it_is_written",
        "micro_batches_differ_between_stages",
        "native_call_holds_interpreter_lock_for_some_time",
        "native_timer_calls_back",
        "nested_group_expects_three",
        "one_receive_too_many",
        "open_file_lock_held_in_a_reduction",
        "pairs_merged_in_plain_python",
        "pool_asked_again_in_its_call_back",
        "rank_left_while_others_wait_for_its_file",
        "rank_suspended_and_resumed",
        "receives_from_wrong_neighbour",
        "record_locks_in_two_orders",
        "records_checked_in_plain_python",
        "recursive_query_without_end",
        "remote_call_comes_back_under_the_lock",
        "resolver_answers_the_third_datagram",
        "results_of_an_empty_shard_are_not_sent",
        "sampler_that_rejects_everything",
        "send_with_another_tag",
        "snapshot_on_a_timer",
        "spawned_program_waits_for_its_late_writer",
        "sub_groups_made_in_another_order",
        "swapped_broadcasts",
        "token_not_passed_on",
        "training_child_spins",
        "two_files_locked_in_two_orders",
        "upload_at_exit_never_ends",
        "waits_for_signal_that_was_not_sent",
        "whole_job_is_paused_for_a_snapshot",
        "wrapped_rank_stops_itself",
        "wrapper_waits_for_its_log_follower",
    )
)
"""Cases whose result led to a change of a rule: they are of the first half, and run with `--moved`."""

CASES: tuple[HeldOutCase, ...] = (
    *(FAULTS + INNOCENTS),
    *(MORE_FAULTS + MORE_INNOCENTS),
    *(THIRD_FAULTS + THIRD_INNOCENTS),
    *(FOURTH_FAULTS + FOURTH_INNOCENTS),
    *(FIFTH_FAULTS + FIFTH_INNOCENTS),
    *(SIXTH_FAULTS + SIXTH_INNOCENTS),
    *(SEVENTH_FAULTS + SEVENTH_INNOCENTS),
)
