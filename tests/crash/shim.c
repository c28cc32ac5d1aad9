/* Stands between a process and its files, and kills it (or fails a call) at the n-th change of a directory.
 *
 * Loaded by LD_PRELOAD. It counts the calls below on files inside one directory; at call n it
 *   before: kills the process instead of the call,
 *   half:   writes half of the bytes first (a call that writes no bytes is treated as "before"),
 *   after:  kills the process when the call has been made,
 *   fail:   makes no call and reports an error, once or from then on. A full disk (ENOSPC) fails writes only.
 *
 * Armed by CRASH_DIR, CRASH_AT and CRASH_WHEN in the environment, or by crash_arm() (so that a forked child needs
 * no new interpreter). The count lies in shared memory: a parent reads it after its child has been killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { NONE, WRITE, SYNC, TRUNCATE, UNLINK, RENAME, LINK, KINDS };
enum action { BEFORE, HALF, AFTER, FAIL, PASS };

struct board {
    atomic_long calls;       /* calls since armed */
    atomic_int kind;         /* what the n-th call was; NONE while it has not come */
    atomic_long kinds[KINDS]; /* calls of each kind */
};

static struct board *board;
static char directory[PATH_MAX];
static size_t length; /* of the directory's name; 0: not armed */
static long at;
static enum action action;
static int error_number;
static int for_ever;

static void share(void) {
    if (board == NULL) {
        board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (board == MAP_FAILED) abort();
    }
}

void crash_arm(const char *where, long n, int what, int error, int ever) {
    share();
    length = 0;
    snprintf(directory, sizeof directory, "%s", where);
    at = n, action = what, error_number = error, for_ever = ever;
    atomic_store(&board->calls, 0);
    atomic_store(&board->kind, NONE);
    for (int kind = 0; kind < KINDS; kind++) atomic_store(&board->kinds[kind], 0);
    length = strlen(directory);
}

void crash_disarm(void) { length = 0; }
long crash_calls(void) { return board == NULL ? 0 : atomic_load(&board->calls); }
int crash_kind(void) { return board == NULL ? NONE : atomic_load(&board->kind); }
long crash_calls_of(int kind) { return board == NULL ? 0 : atomic_load(&board->kinds[kind]); }

__attribute__((constructor)) static void arm_from_environment(void) {
    const char *where = getenv("CRASH_DIR"), *n = getenv("CRASH_AT"), *when = getenv("CRASH_WHEN");
    if (where == NULL || n == NULL || when == NULL) return;
    crash_arm(where, atol(n), strcmp(when, "before") == 0 ? BEFORE : strcmp(when, "half") == 0 ? HALF : AFTER, 0, 0);
}

static int inside(const char *path) {
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static int descriptor_inside(int descriptor) {
    char link[64], path[PATH_MAX];
    if (length == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return inside(path);
}

static int path_inside(int folder, const char *path) {
    char joined[PATH_MAX], here[PATH_MAX];
    if (length == 0) return 0;
    if (path[0] == '/') return inside(path);
    if (folder != AT_FDCWD) return descriptor_inside(folder);
    if (getcwd(here, sizeof here) == NULL) return 0;
    return snprintf(joined, sizeof joined, "%s/%s", here, path) < (int)sizeof joined && inside(joined);
}

/* What is to be done about this call. */
static enum action judge(enum kind kind) {
    long n = atomic_fetch_add(&board->calls, 1) + 1;
    atomic_fetch_add(&board->kinds[kind], 1);
    if (at == 0 || n < at || (n > at && !(action == FAIL && for_ever))) return PASS;
    if (n == at) atomic_store(&board->kind, kind);
    if (action == FAIL && error_number == ENOSPC && kind != WRITE) return PASS;
    if (action == HALF && kind != WRITE) return BEFORE;
    return action;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define REAL(name, result, ...)                                        \
    static result (*real)(__VA_ARGS__);                                \
    if (real == NULL) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define STEP(mine, kind, call, half)                \
    enum action what = (mine) ? judge(kind) : PASS; \
    if (what == BEFORE) die();                      \
    if (what == HALF) half, die();                  \
    if (what == FAIL) {                             \
        errno = error_number;                       \
        return -1;                                  \
    }                                               \
    __typeof__(call) done = call;                   \
    if (what == AFTER) die();                       \
    return done

ssize_t write(int fd, const void *bytes, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    STEP(descriptor_inside(fd), WRITE, real(fd, bytes, n), real(fd, bytes, n / 2));
}

#define PWRITE(name, offset)                                                                            \
    ssize_t name(int fd, const void *bytes, size_t n, offset place) {                                   \
        REAL(name, ssize_t, int, const void *, size_t, offset);                                         \
        STEP(descriptor_inside(fd), WRITE, real(fd, bytes, n, place), real(fd, bytes, n / 2, place)); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define FTRUNCATE(name, offset)                                            \
    int name(int fd, offset size) {                                        \
        REAL(name, int, int, offset);                                      \
        STEP(descriptor_inside(fd), TRUNCATE, real(fd, size), (void)0);    \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

int fsync(int fd) {
    REAL(fsync, int, int);
    STEP(descriptor_inside(fd), SYNC, real(fd), (void)0);
}

int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    STEP(descriptor_inside(fd), SYNC, real(fd), (void)0);
}

int unlink(const char *path) {
    REAL(unlink, int, const char *);
    STEP(path_inside(AT_FDCWD, path), UNLINK, real(path), (void)0);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat, int, int, const char *, int);
    STEP(path_inside(folder, path), UNLINK, real(folder, path, flags), (void)0);
}

int rename(const char *from, const char *to) {
    REAL(rename, int, const char *, const char *);
    STEP(path_inside(AT_FDCWD, to), RENAME, real(from, to), (void)0);
}

int renameat(int folder, const char *from, int target, const char *to) {
    REAL(renameat, int, int, const char *, int, const char *);
    STEP(path_inside(target, to), RENAME, real(folder, from, target, to), (void)0);
}

int link(const char *from, const char *to) {
    REAL(link, int, const char *, const char *);
    STEP(path_inside(AT_FDCWD, to), LINK, real(from, to), (void)0);
}

int linkat(int folder, const char *from, int target, const char *to, int flags) {
    REAL(linkat, int, int, const char *, int, const char *, int);
    STEP(path_inside(target, to), LINK, real(folder, from, target, to, flags), (void)0);
}
