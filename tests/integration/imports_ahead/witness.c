/* Loaded before all other libraries: notes what an import does below Python.
 *
 * A line of the log is "kind<TAB>what<TAB>library", where the library is the one that called. What is noted: variables
 * of the environment that are read by name; reads of the environment's memory around getenv (the strings of some
 * variables lie on a page that cannot be read); files that are looked at; time; randomness; threads, processes, signals.
 *
 * WITNESS_LOG: the descriptor to write to. WITNESS_GUARD: variables whose strings are guarded, separated by commas.
 * WITNESS_SHIFT: seconds that are added to the date.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;

static int log_to = -1;
static volatile int watching;
static volatile int open_guard = 1;
static time_t shift;
static char *guarded;
static size_t guarded_size;
static __thread int inside;

#define REAL(name) \
    static __typeof__(&name) real_##name; \
    if (!real_##name) real_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static const char *library_of(void *address) {
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return "?";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static void note(const char *kind, const char *what, void *caller) {
    if (!watching || inside || log_to < 0) return;
    inside = 1;
    dprintf(log_to, "%s\t%s\t%s\n", kind, what ? what : "", library_of(caller));
    inside = 0;
}

#define NOTE(kind, what) note(kind, what, __builtin_return_address(0))

/* -- the environment -- */

static int is_guarded(const char *at) { return guarded && at >= guarded && at < guarded + guarded_size; }

static void guard(int on) {
    if (!guarded) return;
    mprotect(guarded, guarded_size, on && watching ? PROT_NONE : PROT_READ | PROT_WRITE);
    open_guard = !(on && watching);
}

static void touched(int number, siginfo_t *info, void *context) {
    char *at = info->si_addr;
    if (!is_guarded(at)) {
        signal(number, SIG_DFL);
        return;
    }
    ucontext_t *state = context;
#if defined(__x86_64__)
    void *instruction = (void *)state->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    void *instruction = (void *)state->uc_mcontext.pc;
#else
    void *instruction = 0;
#endif
    mprotect(guarded, guarded_size, PROT_READ | PROT_WRITE);
    open_guard = 1;
    char name[64] = {0};
    char *start = at;
    while (start > guarded && start[-1]) start--;
    for (size_t i = 0; i < sizeof name - 1 && start[i] && start[i] != '='; i++) name[i] = start[i];
    note("memory", name, instruction);
}

static char *lookup(const char *name) {
    size_t length = strlen(name);
    for (char **one = environ; one && *one; one++) {
        if (is_guarded(*one) && !open_guard) continue;
        if (!strncmp(*one, name, length) && (*one)[length] == '=') return *one + length + 1;
    }
    if (!open_guard) { /* one of the guarded, or none */
        guard(0);
        char *found = lookup(name);
        guard(1);
        if (found && is_guarded(found)) return strdup(found); /* who asked may read it later */
        return found;
    }
    return 0;
}

char *getenv(const char *name) {
    NOTE("getenv", name);
    if (guarded) {
        if (open_guard && watching) guard(1);
        return lookup(name);
    }
    REAL(getenv);
    return real_getenv(name);
}

char *secure_getenv(const char *name) {
    NOTE("getenv", name);
    if (guarded) {
        if (open_guard && watching) guard(1);
        return lookup(name);
    }
    REAL(secure_getenv);
    return real_secure_getenv(name);
}

#define CHANGING(call) \
    int before = open_guard; \
    guard(0); \
    int result = call; \
    if (!before) guard(1); \
    return result

int setenv(const char *name, const char *value, int overwrite) {
    REAL(setenv);
    NOTE("setenv", name);
    CHANGING(real_setenv(name, value, overwrite));
}

int putenv(char *string) {
    REAL(putenv);
    NOTE("setenv", string);
    CHANGING(real_putenv(string));
}

int unsetenv(const char *name) {
    REAL(unsetenv);
    NOTE("setenv", name);
    CHANGING(real_unsetenv(name));
}

int clearenv(void) {
    REAL(clearenv);
    NOTE("setenv", "*");
    CHANGING(real_clearenv());
}

/* -- processes, threads, signals -- */

int execve(const char *path, char *const argv[], char *const envp[]) {
    REAL(execve);
    NOTE("process", path);
    CHANGING(real_execve(path, argv, envp));
}

pid_t fork(void) {
    REAL(fork);
    NOTE("process", "fork");
    return real_fork();
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const argv[], char *const envp[]) {
    REAL(posix_spawn);
    NOTE("process", path);
    CHANGING(real_posix_spawn(pid, path, actions, how, argv, envp));
}

int system(const char *command) {
    REAL(system);
    NOTE("process", command);
    CHANGING(real_system(command));
}

FILE *popen(const char *command, const char *mode) {
    REAL(popen);
    NOTE("process", command);
    guard(0);
    return real_popen(command, mode);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    REAL(pthread_create);
    NOTE("thread", "starts");
    return real_pthread_create(thread, how, run, with);
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    REAL(sigaction);
    if (action) {
        char name[16];
        snprintf(name, sizeof name, "%d", number);
        NOTE("signal", name);
    }
    if (action && number == SIGSEGV && guarded) return 0; /* ours stays */
    return real_sigaction(number, action, old);
}

int socket(int domain, int type, int protocol) {
    REAL(socket);
    NOTE("socket", "opens");
    return real_socket(domain, type, protocol);
}

pid_t getpid(void) {
    REAL(getpid);
    NOTE("pid", "");
    return real_getpid();
}

/* -- randomness -- */

ssize_t getrandom(void *to, size_t size, unsigned flags) {
    static ssize_t (*real_getrandom)(void *, size_t, unsigned);
    if (!real_getrandom) real_getrandom = (ssize_t(*)(void *, size_t, unsigned))dlsym(RTLD_NEXT, "getrandom");
    NOTE("random", "getrandom");
    return real_getrandom(to, size, flags);
}

int getentropy(void *to, size_t size) {
    static int (*real_getentropy)(void *, size_t);
    if (!real_getentropy) real_getentropy = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "getentropy");
    NOTE("random", "getentropy");
    return real_getentropy(to, size);
}

long syscall(long number, ...) {
    static long (*real_syscall)(long, ...);
    if (!real_syscall) real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_getrandom) NOTE("random", "getrandom");
    if (number == SYS_openat) NOTE("file", (const char *)b);
    if (number == SYS_memfd_create) NOTE("memory file", (const char *)a);
    return real_syscall(number, a, b, c, d, e, f);
}

/* -- time -- */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    NOTE("time", "clock_gettime");
    int result = real_clock_gettime(clock, now);
    if (now && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift;
    return result;
}

time_t time(time_t *to) {
    REAL(time);
    NOTE("time", "time");
    time_t now = real_time(0) + shift;
    if (to) *to = now;
    return now;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real_gettimeofday)(struct timeval *, void *);
    if (!real_gettimeofday) real_gettimeofday = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    NOTE("time", "gettimeofday");
    int result = real_gettimeofday(now, zone);
    if (now) now->tv_sec += shift;
    return result;
}

/* -- files -- */

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        NOTE(flags & (O_WRONLY | O_RDWR | O_CREAT) ? "write" : "file", path); \
        return real_##name(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        NOTE(flags & (O_WRONLY | O_RDWR | O_CREAT) ? "write" : "file", path); \
        return real_##name(folder, path, flags, mode); \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

FILE *fopen(const char *path, const char *mode) {
    REAL(fopen);
    NOTE(strpbrk(mode, "wa+") ? "write" : "file", path);
    return real_fopen(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    REAL(fopen64);
    NOTE(strpbrk(mode, "wa+") ? "write" : "file", path);
    return real_fopen64(path, mode);
}

#define LOOKS(type, name, kind, parameters, arguments) \
    type name parameters { \
        static type(*real) parameters; \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        NOTE(kind, path); \
        return real arguments; \
    }
LOOKS(int, stat, "look", (const char *path, struct stat *to), (path, to))
LOOKS(int, stat64, "look", (const char *path, struct stat64 *to), (path, to))
LOOKS(int, lstat, "look", (const char *path, struct stat *to), (path, to))
LOOKS(int, lstat64, "look", (const char *path, struct stat64 *to), (path, to))
LOOKS(int, fstatat, "look", (int folder, const char *path, struct stat *to, int flags), (folder, path, to, flags))
LOOKS(int, fstatat64, "look", (int folder, const char *path, struct stat64 *to, int flags), (folder, path, to, flags))
LOOKS(int, __xstat, "look", (int version, const char *path, struct stat *to), (version, path, to))
LOOKS(int, __lxstat, "look", (int version, const char *path, struct stat *to), (version, path, to))
LOOKS(int, __xstat64, "look", (int version, const char *path, struct stat64 *to), (version, path, to))
LOOKS(int, __lxstat64, "look", (int version, const char *path, struct stat64 *to), (version, path, to))
LOOKS(int, access, "look", (const char *path, int how), (path, how))
LOOKS(ssize_t, readlink, "look", (const char *path, char *to, size_t size), (path, to, size))
LOOKS(int, mkdir, "write", (const char *path, mode_t mode), (path, mode))
LOOKS(int, unlink, "write", (const char *path), (path))
LOOKS(int, rmdir, "write", (const char *path), (path))
LOOKS(int, rename, "write", (const char *path, const char *to), (path, to))
LOOKS(int, chdir, "write", (const char *path), (path))
LOOKS(int, shm_open, "write", (const char *path, int flags, mode_t mode), (path, flags, mode))
LOOKS(void *, opendir, "file", (const char *path), (path))

/* -- the probe's own switch -- */

void witness_watch(int on) {
    watching = 0;
    guard(0);
    watching = on;
    guard(on);
}

__attribute__((constructor)) static void begin(void) {
    char *to = getenv("WITNESS_LOG"), *names = getenv("WITNESS_GUARD"), *later = getenv("WITNESS_SHIFT");
    if (!to) return;
    log_to = atoi(to);
    shift = later ? atol(later) : 0;
    if (!names || !*names) return;
    guarded_size = 1 << 16;
    guarded = mmap(0, guarded_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded == MAP_FAILED) {
        guarded = 0;
        return;
    }
    char *at = guarded + 1; /* what stands before it is an end, too */
    char *copy = strdup(names);
    for (char *name = strtok(copy, ","); name; name = strtok(0, ",")) {
        size_t length = strlen(name);
        for (char **one = environ; *one; one++)
            if (!strncmp(*one, name, length) && (*one)[length] == '=') {
                strcpy(at, *one);
                *one = at;
                at += strlen(at) + 1;
            }
    }
    struct sigaction action = {0};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    REAL(sigaction);
    real_sigaction(SIGSEGV, &action, 0);
}
