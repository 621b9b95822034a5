#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct held {
    uint64_t key;
    uint32_t kind, length;
    int file;
    char text[PLIMSOLL_GUARD_TEXT_SIZE];
};

struct answer {
    int32_t result;
    uint64_t key;
};

// Used only by the guard. In the supervisor these pages are never touched.
static struct held table[PLIMSOLL_GUARD_CAPACITY];
static int held_count;

static void set_free(const struct held *held) {
    switch (held->kind) {
    case PLIMSOLL_GUARD_UNIFIED: (void)!write(held->file, "0", 1); break;
    case PLIMSOLL_GUARD_FREEZER: (void)!write(held->file, "THAWED", 6); break;
    case PLIMSOLL_GUARD_STOPPED_GROUP: plimsoll_group_signal(held->file, SIGCONT, 0); break;
    case PLIMSOLL_GUARD_STOPPED_PROCESS: plimsoll_pidfd_signal(held->file, SIGCONT); break;
    case PLIMSOLL_GUARD_TEXT: (void)!write(held->file, held->text, held->length); break;
    }
}

static int take(const struct plimsoll_guard_record *record, int file) {
    for (int i = held_count - 1; i >= 0; i--) {
        if (table[i].key != record->key) continue;
        close(table[i].file);
        table[i] = table[--held_count];
    }
    if (record->kind == PLIMSOLL_GUARD_FORGET) return 0;
    if (file < 0) return -EMFILE;
    if (record->length > PLIMSOLL_GUARD_TEXT_SIZE) return -EINVAL;
    if (held_count == PLIMSOLL_GUARD_CAPACITY) return -ENOSPC;
    struct held *held = &table[held_count++];
    held->key = record->key, held->kind = record->kind, held->length = record->length, held->file = file;
    memcpy(held->text, record->text, record->length);
    return 0;
}

// Receives one record with its file, and sends the result. Returns 0 when the other end has closed.
static int serve(int socket) {
    struct plimsoll_guard_record record;
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {&record, sizeof record};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int file = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) memcpy(&file, CMSG_DATA(header), sizeof file);
    struct answer answer = {-EINVAL, 0};
    if (count == sizeof record) answer = (struct answer){take(&record, file), record.key};
    if (answer.result < 0 && file >= 0) close(file);
    (void)!send(socket, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    return 1;
}

// Runs in the forked process with every signal blocked, and never returns. Must not take locks: another thread may
// have held them at the fork.
static void guard(int socket, int supervisor, const int *kept, int kept_count) {
    setsid();
    prctl(PR_SET_NAME, "plimsoll-guard");
    // Move the files out of the way of the first numbers, then close everything else, so that the guard keeps no pipe
    // of the supervisor open.
    int null = open("/dev/null", O_RDWR);
    int files[2 + PLIMSOLL_GUARD_MOST_KEPT], count = 2 + kept_count;
    for (int i = 0; i < count; i++) files[i] = fcntl(i == 0 ? socket : i == 1 ? supervisor : kept[i - 2], F_DUPFD, 3 + count);
    for (int i = 0; i < 3; i++) dup2(null, i);
    for (int i = 0; i < count; i++)
        if (dup2(files[i], 3 + i) < 0) close(3 + i);
    if (syscall(SYS_close_range, 3u + (unsigned)count, ~0u, 0u) < 0)
        for (int i = 3 + count; i < 65536; i++) close(i);
    (void)!chdir("/");
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    // The socket reports the supervisor's end. A process stuck before its exec may keep a copy of the socket's other
    // end open; the pidfd covers that case.
    struct pollfd watched[2] = {{.fd = 3, .events = POLLIN}, {.fd = files[1] >= 0 ? 4 : -1, .events = POLLIN}};
    for (;;) {
        int ready = poll(watched, 2, -1);
        if (ready < 0 && errno != EINTR) break;
        if (watched[0].revents && !serve(3)) break;
        if (ready > 0 && watched[1].revents) {
            // Read the records that the supervisor sent before it ended.
            while (watched[0].revents && serve(3) && poll(watched, 1, 0) > 0) {}
            break;
        }
    }
    for (int i = 0; i < held_count; i++) set_free(&table[i]);
    _exit(0);
}

int plimsoll_guard_start(const int *kept, int kept_count, int *end, int *pidfd, pid_t *pid) {
    int ends[2];
    if (kept_count < 0 || kept_count > PLIMSOLL_GUARD_MOST_KEPT) return -EINVAL;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return -errno;
    int supervisor = plimsoll_pidfd_open(getpid());
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    // Use the raw system call: the atfork handlers around Glibc's function take locks.
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    int error = errno;
    if (child == 0) {
        close(ends[0]);
        guard(ends[1], supervisor, kept, kept_count);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (supervisor >= 0) close(supervisor);
    if (child < 0) {
        close(ends[0]);
        return -error;
    }
    // The pid is not reused until the guard has been waited for.
    int file = plimsoll_pidfd_open(child);
    if (file < 0) {
        // Without a pidfd the guard could be neither watched nor waited for. Treat this as a failure.
        close(ends[0]);
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
        return file;
    }
    *end = ends[0], *pidfd = file, *pid = child;
    return 0;
}

// Waits in short steps, and takes each off the time that is left. A pause of the whole machine, during which the guard
// could not answer either, counts as one step.
static int wait_for(int socket, int events, int *milliseconds) {
    enum { STEP = 100 };
    while (*milliseconds > 0) {
        int step = *milliseconds < STEP ? *milliseconds : STEP;
        int64_t begin = plimsoll_milliseconds();
        int is_ready = plimsoll_ready(socket, events, step) != 0;
        int64_t took = plimsoll_milliseconds() - begin;
        *milliseconds -= is_ready && took < step ? (int)took : step;
        if (is_ready) return 1;
    }
    return 0;
}

int plimsoll_guard_send(int socket, const struct plimsoll_guard_record *record, int file, int milliseconds) {
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {(void *)record, sizeof *record};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = space, message.msg_controllen = sizeof space;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    // Don't block: a stopped guard reads nothing from the socket.
    while (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return errno == ECONNRESET ? -EPIPE : -errno;
        if (!wait_for(socket, POLLOUT, &milliseconds)) return -ETIMEDOUT;
    }
    for (;;) {
        if (!wait_for(socket, POLLIN, &milliseconds)) return -ETIMEDOUT;
        struct answer answer;
        ssize_t count = recv(socket, &answer, sizeof answer, MSG_DONTWAIT);
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count != sizeof answer) return count < 0 && errno != ECONNRESET ? -errno : -EPIPE;
        // Skip the late answer to an earlier record that timed out.
        if (answer.key == record->key) return answer.result;
    }
}
