/*
 * GET /sandboxes/ID/usage: what a sandbox uses, as Server-Sent Events: `limits` once, then a `usage` for each
 * sample that there is, then for each new one. The keeper takes a sample every five seconds.
 */
#include "cove/samples.h"
#include "fcgi/caller.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"

struct limits_event {
    int64_t memory_bytes, disk_bytes;
};

static const struct json_field limits_fields[] = {
    JSON_INT(struct limits_event, memory_bytes, "memoryBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct limits_event, disk_bytes, "diskBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

struct usage_event {
    uint64_t unix_ms;
    double cpu_percent; /* of one cpu */
    int64_t memory_bytes, disk_bytes;
    int64_t received_bps, sent_bps;
};

static const struct json_field usage_fields[] = {
    JSON_TIME(struct usage_event, unix_ms, "time", JSON_REQUIRED),
    JSON_DOUBLE(struct usage_event, cpu_percent, "cpuPercent", JSON_REQUIRED),
    JSON_INT(struct usage_event, memory_bytes, "memoryBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct usage_event, disk_bytes, "diskBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct usage_event, received_bps, "receivedBytesPerSecond", JSON_REQUIRED, 0,
             INT64_MAX),
    JSON_INT(struct usage_event, sent_bps, "sentBytesPerSecond", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static void tell_limits(struct stream *s, struct request *req, const struct box_info *box)
{
    struct limits limits;

    caller_limits_of(req->core, req->tenant, box->template, box->snapshot, &limits);
    stream_event(
        s, &(struct frame){ .name = "limits" }, limits_fields,
        &(struct limits_event){ (int64_t)limits.memory_max_bytes, (int64_t)limits.disk_max_bytes });
}

/* Samples up to `since` were told before. Returns the time of the last one that was told now. */
static uint64_t tell_new(struct stream *s, const struct sample_ring *ring, uint64_t since)
{
    for (uint32_t i = 0; i < ring->count && i < SAMPLES_MAX; i++) {
        const struct sample *sample = &ring->samples[i];

        if (sample->unix_ms <= since)
            continue;
        since = sample->unix_ms;
        stream_event(s, &(struct frame){ .name = "usage" }, usage_fields,
                     &(struct usage_event){
                         .unix_ms = sample->unix_ms,
                         .cpu_percent = (double)sample->cpu_permille / 10,
                         .memory_bytes = (int64_t)sample->memory_bytes,
                         .disk_bytes = (int64_t)sample->disk_bytes,
                         .received_bps = sample->received_bps,
                         .sent_bps = sample->sent_bps,
                     });
    }
    return since;
}

int console_usage(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sample_ring *ring = arena_alloc(&req->arena, sizeof(*ring));
    struct stream stream;
    struct box_info box;
    uint64_t since = 0;

    req->note.operation = "usage";
    if (console_find(req, &box, e) < 0)
        return -1;
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    tell_limits(&stream, req, &box);
    do {
        if (core_sandbox_samples(req->core, &box, ring, e) == 0)
            since = tell_new(&stream, ring, since);
    } while (stream_drain(&stream) == 0 && console_wait(&stream, req) &&
             console_find(req, &box, e) == 0);
    stream_end(&stream);
    return 0;
}
