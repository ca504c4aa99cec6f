/*
 * The load of the measurements: librdkafka from C, so that the client takes little of the machine that it shares with
 * the broker.
 *
 *     load produce key=value...     records as fast as they are taken
 *     load consume key=value...     a topic from its beginning, again and again
 *     load stream  key=value...     both at once, the consumer from the end
 *     load latency key=value...     records at a fixed rate, and the time until they were acknowledged and came back
 *     load gaps    key=value...     records at a fixed rate to one partition, until the standard input ends: a line
 *                                   "gap BEGIN END" for each time without an acknowledgement, of the monotonic clock
 *
 * Keys: brokers, topic, partitions, size (bytes of a payload), warm_up_s, seconds, rate (records a second; also for
 * stream), records (stop after so many, without a window), partition (the only one to produce to), gap_s (the shortest
 * that is told); any other key is a property of the client, with "producer." or "consumer." before it if it is for one
 * only.
 *
 * It warms up, prints "begin", measures, and prints "end" with its counts as JSON, so that whoever reads the lines can
 * read the broker's CPU at both. A record that failed is an error; nothing is retried here.
 *
 * Latency is counted from the moment at which a record was due, not from when it was sent: a stall counts for every
 * record that it delays. Both ends read the monotonic clock of the one machine.
 */

#define _GNU_SOURCE
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    POOL_BYTES = 8 << 20, /* payloads are pieces of it: no batch holds a piece twice */
    CHUNK = 1000,         /* records handed over, or taken, in one call */
    STALL_S = 60,
    LATE_S = 60,
};

struct options {
    const char *mode, *brokers, *topic;
    int partitions, partition;
    size_t size;
    double warm_up_s, seconds, rate, gap_s;
    int64_t records;
};

static struct options options = {
    .partitions = 1, .partition = RD_KAFKA_PARTITION_UA, .size = 1024, .warm_up_s = 1, .seconds = 2,
};
static rd_kafka_conf_t *producer_conf, *consumer_conf;
static char *pool;
static atomic_llong acknowledged, consumed;
static atomic_bool stopping;
static bool sampled; /* latencies are wanted: the mode is `latency` */

struct samples {
    float *seconds;
    size_t count, capacity;
};

static struct samples ack_times, end_to_end_times;
static double window_begin, window_end, last_acknowledged;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void sleep_until(double due) {
    struct timespec time = {.tv_sec = (time_t)due};
    time.tv_nsec = (long)((due - (double)time.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* Half random bytes, half the same letter, in pieces of 64: lz4 and zstd make about half of it. */
static void fill_pool(void) {
    uint64_t state = 88172645463325252ULL;
    pool = malloc(POOL_BYTES);
    for (size_t at = 0; at < POOL_BYTES; at++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pool[at] = at & 64 ? 'x' : (char)(state >> 24);
    }
}

static char *piece(int64_t number) {
    return pool + ((uint64_t)number * options.size) % (POOL_BYTES - options.size);
}

/* Only records that were due within the window count. Each kind of sample is added by one thread only. */
static void add_sample(struct samples *samples, double due) {
    if (window_begin == 0 || due < window_begin || due >= window_end) return;
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity ? 2 * samples->capacity : 1 << 16;
        samples->seconds = realloc(samples->seconds, samples->capacity * sizeof(float));
    }
    samples->seconds[samples->count++] = (float)(now() - due);
}

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static void print_quantiles(const char *name, struct samples *samples) {
    static const double wanted[] = {0.5, 0.99, 0.999};
    qsort(samples->seconds, samples->count, sizeof(float), by_value);
    printf(", \"%s\": {", name);
    for (size_t at = 0; at < sizeof wanted / sizeof *wanted; at++)
        printf("\"%g\": %.7f, ", wanted[at], samples->seconds[(size_t)((double)samples->count * wanted[at])]);
    printf("\"1\": %.7f}", samples->seconds[samples->count - 1]);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail("%s", error);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!atomic_load(&stopping)) fail("a record was not taken: %s", rd_kafka_err2str(message->err));
        return;
    }
    if (sampled) {
        double due;
        memcpy(&due, message->payload, sizeof due);
        add_sample(&ack_times, due);
    }
    if (options.gap_s > 0) {
        double at = now();
        if (last_acknowledged > 0 && at - last_acknowledged > options.gap_s) {
            printf("gap %.6f %.6f\n", last_acknowledged, at);
            fflush(stdout);
        }
        last_acknowledged = at;
    }
    atomic_fetch_add(&acknowledged, 1);
}

static rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) fail("%s", error);
    return client;
}

/* Hands over chunks until told to stop, or until all `records` are taken over. */
static void *produce_all(void *opaque) {
    rd_kafka_t *client = opaque;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    rd_kafka_message_t chunk[CHUNK];
    int64_t number = 0;
    while (!atomic_load(&stopping) && (!options.records || number < options.records)) {
        int count = options.records && options.records - number < CHUNK ? (int)(options.records - number) : CHUNK;
        memset(chunk, 0, sizeof chunk);
        for (int at = 0; at < count; at++) {
            chunk[at].payload = piece(number + at);
            chunk[at].len = options.size;
        }
        int taken = rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, 0, chunk, count);
        for (int at = 0; at < count; at++)
            if (chunk[at].err && chunk[at].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                fail("a record was refused: %s", rd_kafka_err2str(chunk[at].err));
        number += taken;
        if (taken < count) sleep_until(now() + 0.001);
    }
    return NULL;
}

/* One record each time one is due; the payload begins with that moment. Where the queue is full the next ones are late,
   which counts for each of them: a broker that does not keep up for a while, cold, is slow, not an error. */
static void *produce_at_rate(void *opaque) {
    rd_kafka_t *client = opaque;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    char *payload = malloc(options.size);
    double first = now() + 0.001;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int64_t number = 0; !atomic_load(&stopping); number++) {
        double due = first + (double)number / options.rate;
        if (due > now()) sleep_until(due);
        memcpy(payload, piece(number), options.size);
        memcpy(payload, &due, sizeof due);
        int flags = RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK;
        if (rd_kafka_produce(topic, options.partition, flags, payload, options.size, NULL, 0, NULL))
            fail("a record was refused: %s", rd_kafka_err2str(rd_kafka_last_error()));
    }
    return NULL;
}

static void *serve_deliveries(void *opaque) {
    while (!atomic_load(&stopping)) rd_kafka_poll(opaque, 100);
    return NULL;
}

static void assign_all(rd_kafka_t *client, int64_t offset) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(options.partitions);
    for (int partition = 0; partition < options.partitions; partition++)
        rd_kafka_topic_partition_list_add(list, options.topic, partition)->offset = offset;
    rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
    if (error) fail("assign: %s", rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(list);
}

static void rewind_partition(rd_kafka_t *client, int partition) {
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, options.topic, partition)->offset = 0;
    rd_kafka_error_t *error = rd_kafka_seek_partitions(client, list, 0);
    if (error) fail("seek: %s", rd_kafka_error_string(error));
    rd_kafka_topic_partition_list_destroy(list);
}

/* One at a time where the moment of each counts: a batch would wait until it is full. */
static ssize_t take(rd_kafka_t *client, rd_kafka_queue_t *queue, rd_kafka_message_t **messages) {
    if (!sampled) return rd_kafka_consume_batch_queue(queue, 100, messages, CHUNK);
    messages[0] = rd_kafka_consumer_poll(client, 100);
    return messages[0] != NULL;
}

/* Takes what comes. In the mode consume each partition begins again at its end. */
static void *consume_all(void *opaque) {
    rd_kafka_t *client = opaque;
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_message_t *messages[CHUNK];
    assign_all(client, strcmp(options.mode, "consume") ? RD_KAFKA_OFFSET_END : 0);
    while (!atomic_load(&stopping)) {
        ssize_t count = take(client, queue, messages);
        int64_t records = 0;
        for (ssize_t at = 0; at < count; at++) {
            rd_kafka_message_t *message = messages[at];
            if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                rewind_partition(client, message->partition);
            } else if (message->err) {
                fail("consume: %s", rd_kafka_message_errstr(message));
            } else {
                if (sampled) {
                    double due;
                    memcpy(&due, message->payload, sizeof due);
                    add_sample(&end_to_end_times, due);
                }
                records++;
            }
            rd_kafka_message_destroy(message);
        }
        atomic_fetch_add(&consumed, records);
    }
    return NULL;
}

static pthread_t spawn(void *(*body)(void *), void *opaque) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, opaque)) fail("no thread");
    return thread;
}

/* The load is under way when this many came through; the warm-up begins then. */
static void wait_for(atomic_llong *counter, int64_t count, const char *what) {
    double last_change = now();
    int64_t seen = 0;
    while (atomic_load(counter) < count) {
        int64_t value = atomic_load(counter);
        if (value != seen) last_change = now();
        seen = value;
        if (now() - last_change > STALL_S) fail("%s: %lld of %lld came", what, (long long)seen, (long long)count);
        sleep_until(now() + 0.001);
    }
}

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

/* Samples that are still under way at the end of the window are waited for; what never comes is an error. */
static void wait_for_samples(struct samples *samples, size_t expected, const char *what) {
    double deadline = now() + LATE_S;
    while (samples->count < expected) {
        if (now() > deadline) fail("%s: %zu of %zu records in the window", what, samples->count, expected);
        sleep_until(now() + 0.01);
    }
}

static void measure(bool produces, bool consumes) {
    if (produces) wait_for(&acknowledged, 1, "produce");
    if (consumes) wait_for(&consumed, 1, "consume");
    window_end = now() + 1e9;
    sleep_until(now() + options.warm_up_s);
    int64_t produced = atomic_load(&acknowledged), read = atomic_load(&consumed);
    window_end = now() + options.seconds;
    window_begin = window_end - options.seconds;
    say("begin");
    sleep_until(window_end);
    produced = atomic_load(&acknowledged) - produced;
    read = atomic_load(&consumed) - read;
    if (produces && produced == 0) fail("nothing was acknowledged in the window");
    if (consumes && read == 0) fail("nothing was consumed in the window");
    say("end");
    if (sampled) {
        size_t expected = (size_t)(options.rate * options.seconds * 0.99); /* the edges are not sharp */
        wait_for_samples(&ack_times, expected, "acknowledged");
        wait_for_samples(&end_to_end_times, expected, "consumed");
        sleep_until(now() + 0.2);
    }
    atomic_store(&stopping, true);
    printf("{\"produced\": %lld, \"consumed\": %lld", (long long)produced, (long long)read);
}

static void option(const char *name, const char *value) {
    if (!strcmp(name, "brokers")) options.brokers = value;
    else if (!strcmp(name, "topic")) options.topic = value;
    else if (!strcmp(name, "partitions")) options.partitions = atoi(value);
    else if (!strcmp(name, "size")) options.size = (size_t)atol(value);
    else if (!strcmp(name, "warm_up_s")) options.warm_up_s = atof(value);
    else if (!strcmp(name, "seconds")) options.seconds = atof(value);
    else if (!strcmp(name, "rate")) options.rate = atof(value);
    else if (!strcmp(name, "records")) options.records = atoll(value);
    else if (!strcmp(name, "partition")) options.partition = atoi(value);
    else if (!strcmp(name, "gap_s")) options.gap_s = atof(value);
    else if (!strncmp(name, "producer.", 9)) set(producer_conf, name + 9, value);
    else if (!strncmp(name, "consumer.", 9)) set(consumer_conf, name + 9, value);
    else set(producer_conf, name, value), set(consumer_conf, name, value);
}

static void parse(int count, char **arguments) {
    producer_conf = rd_kafka_conf_new();
    consumer_conf = rd_kafka_conf_new();
    if (count < 2) fail("usage: load produce|consume|stream|latency|gaps key=value...");
    options.mode = arguments[1];
    for (int at = 2; at < count; at++) {
        char *value = strchr(arguments[at], '=');
        if (!value) fail("no key=value: %s", arguments[at]);
        *value = 0;
        option(arguments[at], value + 1);
    }
    sampled = !strcmp(options.mode, "latency");
    bool gaps = !strcmp(options.mode, "gaps");
    if ((sampled || gaps) && options.rate <= 0) fail("%s needs a rate", options.mode);
    if (gaps != (options.gap_s > 0)) fail("gap_s belongs to the mode gaps");
    if (!options.brokers || !options.topic) fail("brokers and topic are needed");
    if (options.size < sizeof(double)) fail("size is too small");
    set(producer_conf, "bootstrap.servers", options.brokers);
    set(consumer_conf, "bootstrap.servers", options.brokers);
    set(consumer_conf, "group.id", "load");
    set(consumer_conf, "enable.auto.commit", "false");
    set(consumer_conf, "enable.partition.eof", !strcmp(options.mode, "consume") ? "true" : "false");
    rd_kafka_conf_set_dr_msg_cb(producer_conf, on_delivery);
}

int main(int count, char **arguments) {
    parse(count, arguments);
    bool produces = strcmp(options.mode, "consume") != 0;
    bool consumes = strcmp(options.mode, "produce") != 0 && options.gap_s == 0;
    pthread_t threads[3];
    int running = 0;
    fill_pool();
    if (consumes) {
        rd_kafka_t *consumer = new_client(RD_KAFKA_CONSUMER, consumer_conf);
        rd_kafka_poll_set_consumer(consumer);
        threads[running++] = spawn(consume_all, consumer);
    }
    if (produces) {
        rd_kafka_t *producer = new_client(RD_KAFKA_PRODUCER, producer_conf);
        threads[running++] = spawn(serve_deliveries, producer);
        threads[running++] = spawn(options.rate > 0 ? produce_at_rate : produce_all, producer);
    }
    if (options.gap_s > 0) {
        wait_for(&acknowledged, 1, "produce");
        say("begin");
        while (getchar() != EOF) continue;
        _exit(0);
    } else if (options.records) {
        wait_for(&acknowledged, options.records, "produce");
        atomic_store(&stopping, true);
        printf("{\"produced\": %lld", (long long)options.records);
    } else {
        measure(produces, consumes);
    }
    for (int at = 0; at < running; at++) pthread_join(threads[at], NULL);
    if (sampled) {
        print_quantiles("ack", &ack_times);
        print_quantiles("end_to_end", &end_to_end_times);
    }
    say("}");
    _exit(0); /* what is still in flight is not waited for */
}
