/* The library that the storm loads, in C. It does the work of `work.rs`, with the same results, also
   while the loader initializes and finalizes it. */

#include <stdint.h>
#include <stdlib.h>

static __thread uint64_t calls;
static volatile uint64_t sink;

static uint64_t mix(uint64_t seed, uint64_t rounds) {
    uint64_t value = seed ^ UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t round = 0; round < rounds; round++) {
        value = ((value << 9 | value >> 55) ^ round) * UINT64_C(0x2545f4914f6cdd1d);
    }
    return value;
}

__attribute__((noinline)) static uint64_t mix_deep(uint64_t seed, uint64_t rounds, uint64_t depth) {
    uint64_t value = depth == 0 ? mix(seed, rounds) : mix_deep(seed, rounds, depth - 1);
    sink = value;
    return value ^ depth;
}

struct task {
    uint64_t seed, rounds, value;
};

static int run(const void *key, const void *element) {
    struct task *task = *(struct task *const *)key;
    task->value = mix(task->seed, task->rounds) ^ *(const uint64_t *)element;
    return 0;
}

/* Works in a function that the C library calls back. */
static uint64_t mix_called_back(uint64_t seed, uint64_t rounds) {
    struct task task = {seed, rounds, 0}, *key = &task;
    const uint64_t element = 0;
    bsearch(&key, &element, 1, sizeof element, run);
    return task.value;
}

__attribute__((constructor)) static void begin(void) { sink = mix(1, 3000); }

__attribute__((destructor)) static void end(void) { sink = mix(2, 3000); }

uint64_t storm_library_work(uint64_t kind, uint64_t seed, uint64_t rounds) {
    calls++;
    switch (kind % 3) {
    case 0: return mix(seed, rounds);
    case 1: return mix_deep(seed, rounds, 30);
    default: return mix_called_back(seed, rounds);
    }
}
