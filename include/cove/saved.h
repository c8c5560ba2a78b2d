/*
 * Saved sandboxes: each is an archive of its files and what is needed to make the sandbox again.
 *
 *   <state_dir>/saved/ID/record           what the keeper needs: "name value" lines
 *                        manifest.json    the same for people and for other machines
 *                        archive.tar.zst  the files; .age behind it when it is encrypted
 *                        attributes       what its dialect keeps with it, without secrets
 *                        network          the rules that its client had set, if any
 *                        layers           the layers of its template, which stay as long as it does
 *                        seal, uploading, uploaded, bucket    on its way to a bucket: see below
 *                        since            when it came into this store, for saved_keep
 *   <state_dir>/saved/.new-ID             a saved sandbox that is being written, and not saved yet
 *   <state_dir>/saved/.old-ID             a saved sandbox that is being removed
 *   <state_dir>/saved-clock               the clock by which `since` counts (sandbox/keeper/retention.c)
 *
 * A directory gets its name ID by one rename when all in it is written, synced and verified. That
 * rename is the moment from which the sandbox is saved.
 */
#ifndef COVE_SAVED_H
#define COVE_SAVED_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"
#include "cove/state.h"

#define SAVED_DIR        "saved" /* below state_dir */
#define SAVED_NEW        ".new-"
#define SAVED_OLD        ".old-"
#define SAVED_RECORD     "record"
#define SAVED_MANIFEST   "manifest.json"
#define SAVED_ARCHIVE    "archive.tar.zst"
#define SAVED_AGE        SAVED_ARCHIVE ".age"
#define SAVED_ATTRIBUTES "attributes"
#define SAVED_NETWORK    "network"
#define SAVED_LAYERS     "layers"      /* of its template, as it was then; none for `base` */
#define SAVED_CLOCK      "saved-clock" /* below state_dir */
#define SAVED_SINCE      "since"
#define SAVED_SEAL       "seal" /* shows machines with the same secret that the small files are genuine */

/* Empty files that tell how far a saved sandbox has come on its way to the bucket (cove/bucket.h). */
#define SAVED_UPLOADING "uploading" /* some of its objects may be there */
#define SAVED_UPLOADED  "uploaded"  /* all objects are there, and this machine has taken it */
#define SAVED_BUCKET    "bucket"    /* all objects are there, and any machine may take it */
#define SAVED_GONE      ".gone-"    /* saved/.gone-ID-MS: to be removed from the bucket */

enum { SAVED_DIGEST_TEXT = 65 }; /* SHA-256 in hexadecimal, with its NUL */

struct saver_report { /* what a saver process tells the keeper: only numbers */
    uint64_t entries; /* members of the archive: files, directories, links, whiteouts, ... */
    uint64_t files, directories, links, whiteouts, sockets_left_out;
    uint64_t content_bytes; /* of all files, holes not counted */
    uint64_t archive_bytes; /* of the archive, as it left the saver */
    char digest[SAVED_DIGEST_TEXT];
};

/* keeper to a saver process */
enum saver_msg {
    /* struct saver_order (+ archive to read, archive to write, files of the sandbox) -> SAVER_REPORT or MSG_ERROR */
    SAVER_ORDER = 800,
    SAVER_REPORT, /* struct saver_report */
    /* to one that stays (+ files and directories, up to SAVER_SYNC_MAX) -> SAVER_REPORT again, or MSG_ERROR */
    SAVER_SYNC,
};
enum { SAVER_SYNC_MAX = 8 };

enum saver_work { SAVER_PACK_TREE = 1, SAVER_UNPACK_TREE, SAVER_DIGEST_FILE };

struct saver_order { /* keeper to a saver process, with the sandbox's files as descriptors */
    uint32_t work;   /* enum saver_work */
    uint32_t attach; /* the files are a mount that can be attached; else only a directory */
    uint32_t stays;  /* after its report it waits for SAVER_SYNC, until the keeper closes */
    uint32_t unused;
    uint64_t max_bytes;     /* PACK: an archive larger than this is given up */
    uint64_t reserve_bytes; /* PACK: likewise, when less than this is free where the archive lies */
    struct saver_report expect; /* UNPACK: the archive holds exactly this */
};

struct saved_info { /* a record */
    struct box_info box;
    struct saver_report report;
    uint64_t saved_unix_ms;
    uint64_t stored_bytes;                   /* of the archive as it is stored, encrypted or not */
    char stored_digest[SAVED_DIGEST_TEXT];   /* likewise */
    char template_digest[SAVED_DIGEST_TEXT]; /* of the list of its layers; "" for `base` */
    bool encrypted;
};

/* Where it is: only here, partly in the bucket (SAVED_UPLOADING), in the bucket and taken by this machine
 * (SAVED_UPLOADED), in the bucket for any machine (SAVED_BUCKET). */
enum saved_place { SAVED_IS_HERE, SAVED_IS_LEAVING, SAVED_IS_OURS, SAVED_IS_THERE };
extern const char *const saved_marks[]; /* by enum saved_place; NULL for the first */
enum saved_place saved_place_of(int dir);
/* Computes the HMAC of record, attributes, network and layers. */
int saved_seal(int dir, const void *secret, size_t secret_len, char ret[SAVED_DIGEST_TEXT],
               struct cove_err *e);
/* Reads the record in the directory `dir`. */
int saved_read(int dir, struct saved_info *ret, struct cove_err *e);
struct buf;
void saved_format(const struct saved_info *s, struct buf *out);
void saved_format_manifest(const struct saved_info *s, struct buf *out);
int saved_parse(char *text, struct saved_info *ret, struct cove_err *e);
const char *saved_archive_name(const struct saved_info *s);

#endif
