#define _GNU_SOURCE
#include <alloca.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))

/* Sleeps at the same instruction with the same stack pointer, called by one function and then by another.
   The argument points to two integers: the phase, which the sleeping thread sets, and the number of phases that may end.
   The phases are 1 and 2. A call between them would overwrite the frames that are left below the stack pointer. */

static char *volatile area;

APART void vla_sleeps(unsigned long bytes, long ms) {
    char *own = alloca(bytes);
    area = own;
    if (ms) {
        struct timespec time = {0, ms * 1000000};
        syscall(SYS_nanosleep, &time, 0);
    }
    asm volatile("" ::"r"(own) : "memory");
}

APART void vla_between(unsigned long bytes, long ms) {
    volatile char own[256];
    own[0] = 1;
    vla_sleeps(bytes, ms);
    own[1] = 2;
}

/* Returns 0 when the stack pointers could not be made the same. All calls are made by one instruction. */
unsigned long sleeps_in_vla(unsigned long argument) {
    void (*volatile call[2])(unsigned long, long) = {vla_between, vla_sleeps};
    volatile int *phase = (volatile int *)argument, *released = phase + 1;
    unsigned long same = 0;
    char *place = 0;
    int round, search = 1, second = 0;
    for (round = 0; *released < 2; round++) {
        int leaves_frames = 0, direct;
        /* First, the search for the number of bytes with which the stack pointer is the same. */
        if (search && (same || round == 800)) {
            if (!same) return 0;
            search = 0;
            *phase = 1;
        }
        /* The frames of this call stay in memory below those of the next calls. */
        if (!search && !second && *released == 1) second = leaves_frames = 1;
        direct = !leaves_frames && (search ? round > 0 : second);
        call[direct](!direct ? 256 : search ? 256 + (unsigned long)round : same, search || leaves_frames ? 0 : 30);
        if (leaves_frames) *phase = 2;
        if (search && round == 0) place = area;
        else if (search && area == place) same = 256 + (unsigned long)round;
    }
    return 1;
}

#define VFORKS(name, number)                        \
    APART void name(long ms) {                      \
        pid_t child = vfork();                      \
        if (child == 0) {                           \
            struct timespec time = {0, ms * 1000000}; \
            syscall(SYS_nanosleep, &time, 0);       \
            _exit(0);                               \
        }                                           \
        waitpid(child, 0, 0);                       \
        asm volatile(".byte 0x0f, 0x1f, 0x40, " #number); \
    }
VFORKS(vfork_first, 1)
VFORKS(vfork_second, 2)

unsigned long sleeps_in_vfork(unsigned long argument) {
    void (*volatile call[2])(long) = {vfork_first, vfork_second};
    volatile int *phase = (volatile int *)argument, *released = phase + 1;
    while (*released < 2) {
        int second = *released == 1;
        *phase = 1 + second;
        call[second](30);
    }
    return 1;
}
