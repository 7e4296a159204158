#define _GNU_SOURCE
#include <alloca.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))

/* Sleeps at the same instruction with the same stack pointer, called by one function and then by another. */

static char *volatile room;

APART void vla_sleeps(unsigned long bytes, long ms) {
    char *own = alloca(bytes);
    room = own;
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

/* 0 when the stack pointers could not be made the same. All calls are made by one instruction. */
unsigned long sleeps_in_vla(unsigned long mark) {
    void (*volatile call[2])(unsigned long, long) = {vla_between, vla_sleeps};
    void (*tell)(int) = (void (*)(int))mark;
    unsigned long same = 0;
    char *place = 0;
    int round;
    /* First the bytes are looked for that make the place the same. */
    for (round = 0; round < 830; round++) {
        int direct = round > 0 && round != 805 && (round < 800 || round > 805);
        unsigned long bytes = !direct ? 256 : round < 800 ? 256 + round : same;
        long ms = round < 800 || round == 805 ? 0 : 30;
        if (round < 800 && same) continue;
        if (round == 800 && !same) return 0;
        if (round == 800) tell(0);
        /* Its frames stay below those of the next calls. */
        if (round == 805) tell(1);
        call[direct](bytes, ms);
        if (round == 0) place = room;
        else if (round < 800 && room == place) same = bytes;
    }
    tell(2);
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

unsigned long sleeps_in_vfork(unsigned long mark) {
    void (*volatile call[2])(long) = {vfork_first, vfork_second};
    void (*tell)(int) = (void (*)(int))mark;
    int round;
    tell(0);
    for (round = 0; round < 5; round++) call[0](30);
    tell(1);
    for (round = 0; round < 20; round++) call[1](30);
    tell(2);
    return 1;
}
