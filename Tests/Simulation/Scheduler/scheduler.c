#define _GNU_SOURCE
#include "CSimulatedThreads.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Only one thread runs at a time, so no lock is needed here.

enum state { READY, PARKED, LOCKED };

struct thread {
    char name[16];
    int group;
    enum state state;
    /// The index in `slots`; -1 for a thread that was killed.
    int index;
    /// Parked: the end of the wait. Locked: the word of the lock.
    int64_t until;
    const volatile uint32_t *lock;
    /// Set for a wait that may last several periods, and the start of that wait.
    const struct simulated_doze *doze;
    int64_t dozing_since;
    void (*body)(void *);
    void *context;
    uint32_t id;
    /// The saved stack pointer and the thread pointer, while another thread runs.
    void *stack, *pointer;
    _Atomic uint32_t isSaved;
};

struct parker {
    bool token;
    /// The thread that waits here, if any: a parker has one waiting thread at a time.
    struct thread *waiting;
};

enum { MOST_THREADS = 4096, MOST_GROUPS = 1 << 16 };

/// A living thread, and the time from which that thread may run. Each turn reads all of these times.
struct slot {
    int64_t from;
    struct thread *thread;
};

/// Special times: at once, and as soon as the thread's lock is free.
static const int64_t AT_ONCE = INT64_MIN, IF_UNLOCKED = INT64_MIN + 1;

static struct slot slots[MOST_THREADS];
static int count;
static bool frozen[MOST_GROUPS];
/// The dozing thread of each group.
static struct thread *dozing[MOST_GROUPS];
static __thread struct thread *current;
static int64_t now;
static uint64_t chance, world_chance, switches, checksum;
static void (*enqueue_job)(void *);

// --wrap gives these names to the functions of the library.
__attribute__((weak)) int __real_plimsoll_thread_start(const char *, void (*)(void *), void *);

bool simulated_is_linked(void) { return __real_plimsoll_thread_start != NULL; }

static long kernel(long number, long a, long b, long c, long d, long e, long f) {
    static long (*next)(long, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, a, b, c, d, e, f);
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static bool one_in(uint64_t number) { return draw(&chance) % number == 0; }

int64_t simulated_now(void) { return now; }
uint64_t simulated_random(void) { return draw(&world_chance); }
uint64_t simulated_switches(void) { return switches; }
uint64_t simulated_checksum(void) { return checksum; }
int simulated_group(void) { return current ? current->group : 0; }
void simulated_join_group(int group) {
    if (group >= MOST_GROUPS) {
        fputs("simulation: too many groups\n", stderr);
        abort();
    }
    current->group = group;
}

// MARK: Turns

// All threads run on the first thread's kernel thread: a switch exchanges the stack and the thread pointer, and costs
// nanoseconds where two system calls would cost microseconds. Each thread was started as usual, and so has a separate
// stack and thread-local variables. The thread's own kernel thread waits for ever.

#ifndef __x86_64__
#error "the simulation switches threads by x86-64 instructions"
#endif

/// Saves the state of one thread and continues with the state of another.
__attribute__((naked, noinline)) static void swap(void **from, void *to, void *pointer) {
    __asm__("push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
            "mov %rsp, (%rdi); mov %rsi, %rsp; wrfsbase %rdx\n"
            "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret");
}

/// Saves the state of the calling thread, sets `isSaved`, and waits for ever without a stack. Returns on the first
/// kernel thread.
__attribute__((naked, noinline)) static void leave_kernel_thread(void **stack, _Atomic uint32_t *isSaved) {
    __asm__("push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
            "mov %rsp, (%rdi); movl $1, (%rsi); mov %rsi, %rdi\n"
            // futex(isSaved, FUTEX_WAIT_PRIVATE, 1, no time limit)
            "1: mov $202, %eax; mov $128, %esi; mov $1, %edx; xor %r10d, %r10d; syscall; jmp 1b");
}

static void *thread_pointer(void) {
    void *pointer;
    __asm__("rdfsbase %0" : "=r"(pointer));
    return pointer;
}

/// Sets what a thread waits for. The thread may run from `from` on.
static void set(struct thread *thread, enum state state, int64_t from) {
    thread->state = state;
    slots[thread->index].from = from;
}

/// Puts a living thread at a place in `slots`.
static void place(struct slot slot, int index) {
    slot.thread->index = index;
    slots[index] = slot;
}

/// Ends the doze of a group's thread: the current wait ends when a wait for one period would end.
static void end_doze(int group) {
    struct thread *thread = dozing[group];
    if (!thread) return;
    dozing[group] = NULL;
    int64_t period = thread->doze->period, waits = (now - thread->dozing_since) / period + 1;
    int64_t until = thread->dozing_since + waits * period;
    if (until < thread->until) thread->until = until;
    if (slots[thread->index].from != AT_ONCE) slots[thread->index].from = thread->until;
    int64_t left = thread->until - now;
    thread->doze->roused(thread->doze->context, left > 0 ? left : 0);
    thread->doze = NULL;
}

/// Returns a random thread among those that may run. Without such a thread, time passes until the first wait is over.
static struct thread *choose(void) {
    static struct thread *ready[MOST_THREADS];
    // Each turn takes a while, and sometimes longer than other threads wait.
    now += 1000 + draw(&chance) % 4000;
    if (one_in(512)) now += draw(&chance) % 3000000;
    // Collects the threads that may run now, or else the threads whose wait ends first.
    int found = 0;
    int64_t first = INT64_MAX;
    for (int i = 0; i < count; i++) {
        int64_t from = slots[i].from;
        if (from > first || from == INT64_MAX) continue;
        struct thread *thread = slots[i].thread;
        if (frozen[thread->group] || (from == IF_UNLOCKED && *thread->lock != 0)) continue;
        if (from < now) from = now;
        if (from < first) (found = 0, first = from);
        ready[found++] = thread;
    }
    if (found == 0) {
        fputs("simulation: all threads wait for each other\n", stderr);
        simulated_print_threads();
        abort();
    }
    now = first;
    struct thread *chosen = ready[draw(&chance) % found];
    end_doze(chosen->group);
    return chosen;
}

/// Gives the turn to a thread that may run, which may be the current one.
static void reschedule(void) {
    struct thread *self = current, *next = choose();
    switches++;
    checksum = (checksum ^ next->id ^ (uint64_t)now) * 0x100000001b3;
    if (next != self) swap(&self->stack, next->stack, next->pointer);
}

/// Offers the turn to another thread, by chance.
static void perhaps(uint64_t in) {
    if (current && one_in(in)) reschedule();
}

void simulated_sleep(int64_t nanoseconds) {
    current->until = now + nanoseconds;
    set(current, PARKED, current->until);
    reschedule();
    set(current, READY, AT_ONCE);
}

// MARK: Threads

/// Threads that have ended, whose stacks and kernel threads are used again.
static struct thread *ended[MOST_THREADS];
static int ended_count;

static void *run_thread(void *argument) {
    struct thread *self = argument;
    self->pointer = thread_pointer();
    current = self;
    leave_kernel_thread(&self->stack, &self->isSaved);
    for (;;) {
        self->body(self->context);
        place(slots[--count], self->index);
        ended[ended_count++] = self;
        struct thread *next = choose();
        switches++;
        swap(&self->stack, next->stack, next->pointer);
    }
}

static struct thread *add(struct thread *thread, const char *name) {
    if (count == MOST_THREADS) {
        fputs("simulation: too many threads\n", stderr);
        simulated_print_threads();
        abort();
    }
    static uint32_t ids;
    if (!thread) thread = calloc(1, sizeof *thread);
    if (!thread) abort();
    if (!thread->id) thread->id = ++ids;
    snprintf(thread->name, sizeof thread->name, "%s", name);
    thread->group = current ? current->group : 0;
    thread->state = READY;
    place((struct slot){AT_ONCE, thread}, count++);
    return thread;
}

int __wrap_plimsoll_thread_start(const char *name, void (*body)(void *), void *context) {
    bool isNew = ended_count == 0;
    struct thread *thread = add(isNew ? NULL : ended[--ended_count], name);
    (thread->body = body, thread->context = context);
    if (isNew) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 512 << 10);
        pthread_t id;
        if (pthread_create(&id, &attributes, run_thread, thread)) abort();
        pthread_attr_destroy(&attributes);
        while (!atomic_load_explicit(&thread->isSaved, memory_order_acquire)) sched_yield();
    }
    perhaps(2);
    return 0;
}

// MARK: Waiting

void *__wrap_plimsoll_parker_make(void) {
    struct parker *parker = calloc(1, sizeof *parker);
    if (!parker) abort();
    return parker;
}

void __wrap_plimsoll_parker_free(struct parker *parker) { free(parker); }

bool __wrap_plimsoll_park(struct parker *parker, int64_t nanoseconds) {
    if (parker->token) {
        current->doze = NULL;
        parker->token = false;
        perhaps(4);
        return true;
    }
    parker->waiting = current;
    current->until = nanoseconds < 0 ? INT64_MAX : now + nanoseconds;
    if (current->doze) {
        current->dozing_since = now;
        current->until = now + current->doze->longest;
        dozing[current->group] = current;
    }
    set(current, PARKED, current->until);
    reschedule();
    set(current, READY, AT_ONCE);
    parker->waiting = NULL;
    bool unparked = parker->token;
    parker->token = false;
    return unparked;
}

void __wrap_plimsoll_unpark(struct parker *parker) {
    parker->token = true;
    if (parker->waiting && parker->waiting->index >= 0) slots[parker->waiting->index].from = AT_ONCE;
    perhaps(4);
}

// MARK: Groups

void simulated_doze(const struct simulated_doze *doze) { current->doze = doze; }
void simulated_rouse(int group) { end_doze(group); }

void simulated_freeze(int group) {
    end_doze(group);
    frozen[group] = true;
}
void simulated_thaw(int group) { frozen[group] = false; }

void simulated_kill(int group) {
    int left = 0;
    dozing[group] = NULL;
    for (int i = 0; i < count; i++) {
        struct thread *thread = slots[i].thread;
        if (thread->group != group || thread == current) place(slots[i], left++);
        else thread->index = -1;
    }
    count = left;
}

void simulated_print_threads(void) {
    static const char *const words[] = {"ready", "parked", "waits for a lock"};
    fprintf(stderr, "at %.6f s, after %llu switches\n", now / 1e9, (unsigned long long)switches);
    for (int i = 0; i < count; i++) {
        const struct thread *thread = slots[i].thread;
        fprintf(stderr, "  group %d %-15s %s%s", thread->group, thread->name, words[thread->state],
                frozen[thread->group] ? ", frozen" : "");
        if (thread->state == PARKED && thread->until < INT64_MAX) fprintf(stderr, " until %.6f s", thread->until / 1e9);
        fputs(thread == current ? " (current)\n" : "\n", stderr);
    }
}

// MARK: The Swift runtime

#define SWIFT_CC __attribute__((swiftcall))

// Hooks of the Swift runtime, for custom executors.
extern void *swift_task_enqueueGlobal_hook, *swift_task_enqueueGlobalWithDelay_hook;

static SWIFT_CC void enqueue_global(void *job, SWIFT_CC void (*original)(void *)) {
    (void)original;
    enqueue_job(job);
}

static SWIFT_CC void enqueue_later(uint64_t delay, void *job, SWIFT_CC void (*original)(uint64_t, void *)) {
    (void)delay, (void)job, (void)original;
    fputs("simulation: Task.sleep waits for real time\n", stderr);
    abort();
}

void simulated_begin(uint64_t seed, void (*enqueue)(void *job)) {
    (chance = seed, world_chance = ~seed, enqueue_job = enqueue);
    current = add(NULL, "main");
    current->pointer = thread_pointer();
    swift_task_enqueueGlobal_hook = (void *)enqueue_global;
    swift_task_enqueueGlobalWithDelay_hook = (void *)enqueue_later;
}

/// Waits until a lock is free: its word is zero.
static void await_lock(const volatile void *word) {
    current->lock = (const volatile uint32_t *)word;
    set(current, LOCKED, IF_UNLOCKED);
    reschedule();
    set(current, READY, AT_ONCE);
}

// These functions take precedence over the C library's functions, also for the libraries of Swift.

/// The runtime calls cancellation handlers under the lock of the task.
int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*next)(pthread_mutex_t *);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (!current) return next(mutex);
    int result;
    while ((result = pthread_mutex_trylock(mutex)) == EBUSY) await_lock(&mutex->__data.__lock);
    return result;
}

long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (current && number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_LOCK_PI) {
        // The same as in the kernel: the word of a lock that is taken names the thread.
        while (*(volatile uint32_t *)a[0] != 0) await_lock((const void *)a[0]);
        *(volatile uint32_t *)a[0] = current->id;
        return 0;
    }
    // `Mutex` identifies threads by this number.
    if (current && number == SYS_gettid) return current->id;
    if (current && number == SYS_getrandom) {
        // Numbers of the system would make runs differ.
        for (long i = 0; i < a[1]; i++) ((uint8_t *)a[0])[i] = (uint8_t)draw(&world_chance);
        return a[1];
    }
    return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
