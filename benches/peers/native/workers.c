/* A C library that makes threads: each computes until it is told to end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_WORKERS 16

static pthread_t workers[MAX_WORKERS];
static size_t worker_count;
static atomic_bool is_ending;
static _Atomic uint64_t result;

/* Not inlined and not a tail call, so that the stacks have several functions of the library. */
__attribute__((noinline)) static uint64_t mix_words(uint64_t *words, size_t count) {
  uint64_t sum = 0;
  for (size_t round = 0; round < 64; round++) {
    for (size_t i = 0; i < count; i++) {
      words[i] = words[i] * 6364136223846793005u + 1442695040888963407u;
      sum += words[i] >> 33;
    }
  }
  return sum;
}

__attribute__((noinline)) static uint64_t do_one_job(uint64_t seed) {
  uint64_t words[256];
  for (size_t i = 0; i < 256; i++) {
    words[i] = seed + i;
  }
  return mix_words(words, 256) | 1;
}

static void *run_worker(void *seed) {
  uint64_t state = (uint64_t)(uintptr_t)seed;
  while (!atomic_load_explicit(&is_ending, memory_order_relaxed)) {
    state = do_one_job(state);
  }
  atomic_fetch_add(&result, state);
  return NULL;
}

/* Starts up to 16 workers. Returns 0, or an error number. Call it once. */
int peers_start_workers(size_t count) {
  for (; worker_count < count && worker_count < MAX_WORKERS; worker_count++) {
    int error = pthread_create(&workers[worker_count], NULL, run_worker, (void *)(worker_count + 1));
    if (error != 0) {
      return error;
    }
  }
  return 0;
}

/* Ends the workers, and returns what they have computed. */
uint64_t peers_end_workers(void) {
  atomic_store(&is_ending, true);
  while (worker_count > 0) {
    pthread_join(workers[--worker_count], NULL);
  }
  return result;
}
