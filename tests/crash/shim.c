/* Stands between a process and its files, and kills it (or fails a call) at the n-th change of a directory.
 *
 * Loaded by LD_PRELOAD. It counts the calls below on files inside one directory; at call n it
 *   before: kills the process instead of the call,
 *   half:   writes half of the bytes first (a call that writes no bytes is treated as "before"),
 *   after:  kills the process when the call has been made,
 *   fail:   makes no call and reports an error, once or from then on. A full disk (ENOSPC) fails writes only.
 *
 * Or it kills nothing and writes down every change inside the directory, in order and with all bytes (crash_record):
 * from that, power.py makes what a disk may hold after the power was lost. Bytes that go through stdio are written
 * down as a whole when the stream is closed.
 *
 * Armed by CRASH_DIR, CRASH_AT and CRASH_WHEN in the environment, or by crash_arm() (so that a forked child needs
 * no new interpreter). The count lies in shared memory: a parent reads it after its child has been killed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
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

/* The recording: a head of fixed size for each change, then its two names and its bytes. */
enum change { MARKED, CREATED, WRITTEN, CUT, SYNCED, REMOVED, RENAMED, LINKED, FOLDER_MADE, FOLDER_REMOVED };

struct head {
    uint32_t change, name_bytes, other_bytes, unused;
    uint64_t inode, place, n_bytes;
};

static int recording = -1;
static pthread_mutex_t one_at_a_time = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void put(const void *bytes, size_t n) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    for (size_t done = 0; done < n;) {
        ssize_t more = real(recording, (const char *)bytes + done, n - done);
        if (more <= 0) abort();
        done += (size_t)more;
    }
}

static void record(enum change change, uint64_t inode, const char *name, const char *other, uint64_t place,
                   const void *bytes, size_t n) {
    int error = errno;
    uint32_t name_bytes = name ? strlen(name) : 0, other_bytes = other ? strlen(other) : 0;
    struct head head = {change, name_bytes, other_bytes, 0, inode, place, n};
    put(&head, sizeof head);
    put(name, name_bytes);
    put(other, other_bytes);
    put(bytes, n);
    errno = error;
}

static uint64_t inode_of(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

static int starts_with_slash(const char *path) { return path[0] == '/'; }

/* The absolute name, in `whole`. */
static const char *absolute(int folder, const char *path, char *whole) {
    char link[64], here[PATH_MAX];
    if (starts_with_slash(path)) return path;
    if (folder == AT_FDCWD) {
        if (getcwd(here, sizeof here) == NULL) abort();
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, here, sizeof here - 1);
        if (n < 0) abort();
        here[n] = '\0';
    }
    if (snprintf(whole, PATH_MAX, "%s/%s", here, path) >= PATH_MAX) abort();
    return whole;
}

void crash_record(const char *where, const char *log) {
    share();
    length = 0;
    at = 0;
    snprintf(directory, sizeof directory, "%s", where);
    recording = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (recording < 0) abort();
    length = strlen(directory);
}

void crash_mark(const char *what) {
    if (recording >= 0) record(MARKED, 0, what, NULL, 0, NULL, 0);
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
    char whole[PATH_MAX];
    return length != 0 && inside(absolute(folder, path, whole));
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

#define STEP(mine, kind, call, half, note)               \
    int here = (mine);                                    \
    enum action what = here ? judge(kind) : PASS;         \
    if (what == BEFORE) die();                            \
    if (what == HALF) half, die();                        \
    if (what == FAIL) {                                   \
        errno = error_number;                             \
        return -1;                                        \
    }                                                     \
    here = here && recording >= 0;                        \
    if (here) pthread_mutex_lock(&one_at_a_time);         \
    __typeof__(call) done = call;                         \
    if (here && done >= 0) note;                          \
    if (here) pthread_mutex_unlock(&one_at_a_time);       \
    if (what == AFTER) die();                             \
    return done

/* Where a write without a place goes: the end of a file that is appended to, else where the descriptor stands. */
static uint64_t place_of(int fd) {
    struct stat status;
    if (recording < 0 || length == 0) return 0;
    if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &status) == 0 ? (uint64_t)status.st_size : 0;
    return (uint64_t)lseek(fd, 0, SEEK_CUR);
}

/* Bytes that came into a file by a way on which they were not seen, read back from it. */
static void record_read_back(int fd, uint64_t place, size_t n) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int again = open(name, O_RDONLY | O_CLOEXEC);
    char *bytes = malloc(n ? n : 1);
    if (again < 0 || bytes == NULL || pread(again, bytes, n, (off_t)place) != (ssize_t)n) abort();
    record(WRITTEN, inode_of(fd), NULL, NULL, place, bytes, n);
    free(bytes);
    close(again);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    uint64_t place = place_of(fd);
    STEP(descriptor_inside(fd), WRITE, real(fd, bytes, n), real(fd, bytes, n / 2),
         record(WRITTEN, inode_of(fd), NULL, NULL, place, bytes, (size_t)done));
}

#define PWRITE(name, offset)                                                                            \
    ssize_t name(int fd, const void *bytes, size_t n, offset place) {                                   \
        REAL(name, ssize_t, int, const void *, size_t, offset);                                         \
        STEP(descriptor_inside(fd), WRITE, real(fd, bytes, n, place), real(fd, bytes, n / 2, place),  \
             record(WRITTEN, inode_of(fd), NULL, NULL, (uint64_t)place, bytes, (size_t)done));        \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t sendfile(int fd, int from, off_t *start, size_t n) {
    REAL(sendfile, ssize_t, int, int, off_t *, size_t);
    uint64_t place = place_of(fd);
    STEP(descriptor_inside(fd), WRITE, real(fd, from, start, n), real(fd, from, start, n / 2),
         record_read_back(fd, place, (size_t)done));
}

#define FTRUNCATE(name, offset)                                       \
    int name(int fd, offset size) {                                   \
        REAL(name, int, int, offset);                                 \
        STEP(descriptor_inside(fd), TRUNCATE, real(fd, size), (void)0, \
             record(CUT, inode_of(fd), NULL, NULL, (uint64_t)size, NULL, 0)); \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

int fsync(int fd) {
    REAL(fsync, int, int);
    STEP(descriptor_inside(fd), SYNC, real(fd), (void)0, record(SYNCED, inode_of(fd), NULL, NULL, 0, NULL, 0));
}

int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    STEP(descriptor_inside(fd), SYNC, real(fd), (void)0, record(SYNCED, inode_of(fd), NULL, NULL, 0, NULL, 0));
}

/* A change of one name, or of two. */
#define NAMED(change, folder, path, target, other)                                                  \
    do {                                                                                            \
        char whole[PATH_MAX], second[PATH_MAX];                                                     \
        record(change, 0, absolute(folder, path, whole), absolute(target, other, second), 0, NULL, 0); \
    } while (0)

int unlink(const char *path) {
    REAL(unlink, int, const char *);
    STEP(path_inside(AT_FDCWD, path), UNLINK, real(path), (void)0, NAMED(REMOVED, AT_FDCWD, path, AT_FDCWD, "/"));
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat, int, int, const char *, int);
    enum change change = flags & AT_REMOVEDIR ? FOLDER_REMOVED : REMOVED;
    STEP(path_inside(folder, path), UNLINK, real(folder, path, flags), (void)0,
         NAMED(change, folder, path, AT_FDCWD, "/"));
}

int rmdir(const char *path) {
    REAL(rmdir, int, const char *);
    STEP(path_inside(AT_FDCWD, path), UNLINK, real(path), (void)0,
         NAMED(FOLDER_REMOVED, AT_FDCWD, path, AT_FDCWD, "/"));
}

int rename(const char *from, const char *to) {
    REAL(rename, int, const char *, const char *);
    STEP(path_inside(AT_FDCWD, to), RENAME, real(from, to), (void)0, NAMED(RENAMED, AT_FDCWD, from, AT_FDCWD, to));
}

int renameat(int folder, const char *from, int target, const char *to) {
    REAL(renameat, int, int, const char *, int, const char *);
    STEP(path_inside(target, to), RENAME, real(folder, from, target, to), (void)0,
         NAMED(RENAMED, folder, from, target, to));
}

int link(const char *from, const char *to) {
    REAL(link, int, const char *, const char *);
    STEP(path_inside(AT_FDCWD, to), LINK, real(from, to), (void)0, NAMED(LINKED, AT_FDCWD, from, AT_FDCWD, to));
}

int linkat(int folder, const char *from, int target, const char *to, int flags) {
    REAL(linkat, int, int, const char *, int, const char *, int);
    STEP(path_inside(target, to), LINK, real(folder, from, target, to, flags), (void)0,
         NAMED(LINKED, folder, from, target, to));
}

/* Calls that are recorded, but no points at which a process is killed. */

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat, int, int, const char *, mode_t);
    int done = real(folder, path, mode);
    if (done == 0 && recording >= 0 && path_inside(folder, path)) {
        char whole[PATH_MAX];
        struct stat status;
        const char *name = absolute(folder, path, whole);
        if (stat(name, &status) != 0) abort();
        record(FOLDER_MADE, status.st_ino, name, NULL, 0, NULL, 0);
    }
    return done;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

struct before {
    int noted, existed, had_bytes;
};

static struct before look(int folder, const char *path, int writes) {
    struct before before = {0, 0, 0};
    struct stat status;
    char whole[PATH_MAX];
    if (recording < 0 || !writes || !path_inside(folder, path)) return before;
    before.noted = 1;
    before.existed = stat(absolute(folder, path, whole), &status) == 0;
    before.had_bytes = before.existed && status.st_size > 0;
    return before;
}

static void record_opened(struct before before, int folder, const char *path, int fd, int cuts) {
    char whole[PATH_MAX];
    if (!before.noted || fd < 0) return;
    if (!before.existed) record(CREATED, inode_of(fd), absolute(folder, path, whole), NULL, 0, NULL, 0);
    if (before.had_bytes && cuts) record(CUT, inode_of(fd), NULL, NULL, 0, NULL, 0);
}

#define OPEN(name)                                                           \
    int name(const char *path, int flags, ...) {                             \
        REAL(name, int, const char *, int, ...);                             \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        struct before before = look(AT_FDCWD, path, flags & (O_CREAT | O_TRUNC)); \
        int fd = real(path, flags, mode);                                    \
        record_opened(before, AT_FDCWD, path, fd, flags & O_TRUNC);          \
        return fd;                                                           \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                         \
    int name(int folder, const char *path, int flags, ...) {                 \
        REAL(name, int, int, const char *, int, ...);                        \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        struct before before = look(folder, path, flags & (O_CREAT | O_TRUNC)); \
        int fd = real(folder, path, flags, mode);                            \
        record_opened(before, folder, path, fd, flags & O_TRUNC);            \
        return fd;                                                           \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                          \
    FILE *name(const char *path, const char *mode) {                         \
        REAL(name, FILE *, const char *, const char *);                      \
        struct before before = look(AT_FDCWD, path, mode[0] != 'r');         \
        FILE *stream = real(path, mode);                                     \
        if (stream != NULL) record_opened(before, AT_FDCWD, path, fileno(stream), mode[0] == 'w'); \
        return stream;                                                       \
    }
FOPEN(fopen)
FOPEN(fopen64)

int fclose(FILE *stream) {
    REAL(fclose, int, FILE *);
    int fd = recording >= 0 ? fileno(stream) : -1;
    if (fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && descriptor_inside(fd)) {
        struct stat status;
        if (fflush(stream) != 0 || fstat(fd, &status) != 0) abort();
        record_read_back(fd, 0, (size_t)status.st_size);
    }
    return real(stream);
}
