#define _GNU_SOURCE
#include "child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Number of pidfds held at a time, and greatest depth of the walk.
enum { BATCH = 64, DEPTH = 12 };

// Returns the state letter in /proc/PID/stat, which stands after the last ')': a name may contain any byte. Returns 0
// if the process is gone.
static char state_of(pid_t pid) {
    char path[32] = "/proc/", text[512], digits[12];
    int count_of_digits = 0, end_of_path = 6;
    do digits[count_of_digits++] = '0' + pid % 10;
    while (pid /= 10);
    while (count_of_digits) path[end_of_path++] = digits[--count_of_digits];
    memcpy(path + end_of_path, "/stat", 6);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t count = read(file, text, sizeof text);
    close(file);
    char *end = count > 0 ? memrchr(text, ')', count) : NULL;
    return end && end + 2 < text + count ? end[2] : 0;
}

static int open_list(int directory) {
    // Open the file anew for each pass. Version 1 caches the list for a second for repeated reads of one file
    // (kernel/cgroup/cgroup-v1.c).
    int list = openat(directory, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    return list < 0 ? -errno : list;
}

// Reads a list in chunks. `next_pid` returns the next pid, or 0 at the end.
struct reader {
    int list;
    char chunk[1024];
    ssize_t count, at;
};

static pid_t next_pid(struct reader *reader) {
    int64_t pid = 0;
    for (;;) {
        if (reader->at == reader->count) {
            do reader->count = read(reader->list, reader->chunk, sizeof reader->chunk);
            while (reader->count < 0 && errno == EINTR);
            reader->at = 0;
            if (reader->count <= 0) {
                reader->count = 0;
                return 0;
            }
        }
        char byte = reader->chunk[reader->at++];
        if (byte >= '0' && byte <= '9' && pid < 1 << 30) pid = pid * 10 + (byte - '0');
        else if (pid > 0) return (pid_t)pid;
    }
}

// A pid may have been reused by the time it is opened. A process whose pidfd was opened before its pid was listed
// again belonged to the group (K38).
static int signal_batch(int directory, const pid_t *pids, int count, int signal) {
    int files[BATCH], listed[BATCH] = {0}, reached = 0;
    for (int i = 0; i < count; i++) files[i] = plimsoll_pidfd_open(pids[i]);
    struct reader reader = {.list = open_list(directory)};
    if (reader.list >= 0) {
        for (pid_t pid; (pid = next_pid(&reader));)
            for (int i = 0; i < count; i++)
                if (pids[i] == pid) listed[i] = 1;
        close(reader.list);
    }
    for (int i = 0; i < count; i++) {
        if (files[i] < 0) continue;
        if (listed[i] && plimsoll_pidfd_signal(files[i], signal) == 0) reached++;
        close(files[i]);
    }
    return reached;
}

static int wants(pid_t pid, int signal) {
    char state = state_of(pid);
    if (state == 0 || state == 'Z' || state == 'X') return 0;
    if (signal == SIGSTOP) return state != 'T' && state != 't';
    if (signal == SIGCONT) return state == 'T';
    return 1;
}

static int signal_below(int directory, int signal, pid_t spared, int depth) {
    struct reader reader = {.list = open_list(directory)};
    if (reader.list < 0) return reader.list;
    pid_t pids[BATCH];
    int count = 0, reached = 0;
    for (pid_t pid; (pid = next_pid(&reader));) {
        if (pid == spared || !wants(pid, signal)) continue;
        pids[count++] = pid;
        if (count == BATCH) reached += signal_batch(directory, pids, count, signal), count = 0;
    }
    if (count) reached += signal_batch(directory, pids, count, signal);
    close(reader.list);
    if (depth == DEPTH) return reached;

    int folder = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return reached;
    struct { _Alignas(8) char bytes[1024]; } chunk;
    for (long size; (size = syscall(SYS_getdents64, folder, chunk.bytes, sizeof chunk.bytes)) > 0;) {
        for (long at = 0; at < size;) {
            struct dirent64 *entry = (struct dirent64 *)(chunk.bytes + at);
            at += entry->d_reclen;
            if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
            int child = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            if (child < 0) continue;
            int more = signal_below(child, signal, spared, depth + 1);
            if (more > 0) reached += more;
            close(child);
        }
    }
    close(folder);
    return reached;
}

int plimsoll_group_signal(int directory, int signal, pid_t spared) { return signal_below(directory, signal, spared, 0); }

int plimsoll_text_has(int file, const char *line) {
    char text[256];
    ssize_t count = pread(file, text, sizeof text, 0);
    if (count < 0) return -errno;
    size_t length = strlen(line);
    for (char *at = text, *end = text + count; at < end;) {
        char *next = memchr(at, '\n', end - at);
        if (!next) next = end;
        if ((size_t)(next - at) == length && memcmp(at, line, length) == 0) return 1;
        at = next + 1;
    }
    return 0;
}

int plimsoll_membership_is(const void *text, size_t count) {
    char now[4096];
    int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    size_t have = 0;
    for (ssize_t chunk; have < sizeof now && (chunk = read(file, now + have, sizeof now - have)) > 0;) have += chunk;
    close(file);
    return have == count && memcmp(now, text, count) == 0;
}
