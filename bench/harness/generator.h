/* What the load generators that speak Kafka's protocol by themselves have in common: how they end, the clock, numbers of
 * the wire, quantiles. Whoever includes it defines PROGRAM, its name, and _GNU_SOURCE before.
 */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

enum {
    SIZE_BYTES = 4,
    CORRELATION_IN_REQUEST = 8, /* behind size, api key and version */
    STEPS = 128,                /* of the histogram, for each doubling */
    DOUBLINGS = 40,
};

static const int64_t SECOND = 1000000000;

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL) fail("out of memory");
    return memory;
}

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * SECOND + at.tv_nsec;
}

static uint32_t read_be32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static void write_be32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

/* Tells whoever started the program where the measured time begins and ends. */
static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

/* As many connections as the system lets it have, and timers that are on time. */
static void make_ready(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1);
}

/* ---- histogram: below 2 * STEPS exact, above STEPS buckets for every doubling (an error below 0.8 %) ---- */

struct histogram {
    uint64_t buckets[DOUBLINGS * STEPS];
    uint64_t count;
};

static void add(struct histogram *histogram, int64_t nanoseconds) {
    uint64_t value = nanoseconds > 0 ? (uint64_t)nanoseconds : 0;
    size_t bucket = value;
    if (value >= 2 * STEPS) {
        int shift = 63 - __builtin_clzll(value) - 7;
        bucket = (size_t)shift * STEPS + (value >> shift);
    }
    histogram->buckets[bucket < DOUBLINGS * STEPS ? bucket : DOUBLINGS * STEPS - 1]++;
    histogram->count++;
}

static double quantile_us(const struct histogram *histogram, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)histogram->count), seen = 0;
    for (size_t bucket = 0; bucket < DOUBLINGS * STEPS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen <= rank) continue;
        if (bucket < 2 * STEPS) return (double)bucket / 1000.0;
        int shift = (int)(bucket / STEPS) - 1;
        uint64_t low = (uint64_t)(bucket - (size_t)shift * STEPS) << shift;
        return (double)(low + ((1ULL << shift) >> 1)) / 1000.0;
    }
    return 0.0;
}
