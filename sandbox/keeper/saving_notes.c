/*
 * The files beside the archive of a sandbox that is being saved: its record, its manifest, its attributes, its network
 * settings, and the list of its layers. They are written twice: at the beginning, because they would be gone if the
 * sandbox died meanwhile, and at the end, because they may have changed.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/file.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"
#include "sandbox/keeper/store.h"

/* Identifies the template: a digest of the list of its layers, whose names are digests themselves. */
static void digest_layers(int dir, char ret[SAVED_DIGEST_TEXT])
{
    char text[(LAYER_NAME_LEN + 1) * LAYERS_MAX + 1];
    ssize_t len = read_file_at(dir, SAVED_LAYERS, text, sizeof(text));
    unsigned char sum[EVP_MAX_MD_SIZE];

    if (len > 0 && EVP_Digest(text, (size_t)len, sum, NULL, EVP_sha256(), NULL) == 1)
        text_hex(sum, 32, ret);
}

static int write_record(int dir, const struct saved_info *info, bool *changed, struct cove_err *e)
{
    AUTO_BUF struct buf record = BUF(8192);
    AUTO_BUF struct buf manifest = BUF(16384);

    saved_format(info, &record);
    saved_format_manifest(info, &manifest);
    if (record.overflow || manifest.overflow)
        return cove_fail(e, COVE_LIMIT, "the record of the saved sandbox is too long");
    if (saved_write(dir, SAVED_MANIFEST, manifest.data, manifest.len, changed, e) < 0)
        return -1;
    return saved_write(dir, SAVED_RECORD, record.data, record.len, changed, e);
}

/* The list of layers that the sandbox was made with: its template may have been replaced since. */
static int keep_layers(const struct keeper *k, const char *id, int dir, struct cove_err *e)
{
    char from[64];

    snprintf(from, sizeof(from), "%s/" SAVED_LAYERS, id);
    if (linkat(k->boxes_dir, from, dir, SAVED_LAYERS, 0) < 0 && errno != ENOENT && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "layers of '%s'", id);
    return 0;
}

int saving_notes_keep(const struct keeper *k, const struct box *b, int dir, bool *changed,
                      struct cove_err *e)
{
    if (b->dead)
        return 0;
    if (keep_layers(k, b->info.id, dir, e) < 0 ||
        attributes_keep(k, b->info.id, dir, changed, e) < 0)
        return -1;
    return network_keep(k, b->info.id, dir, changed, e);
}

int saving_notes_write(const struct keeper *k, const struct box *b, int dir,
                       struct saved_info *info, bool *changed, struct cove_err *e)
{
    info->box = b->info;
    info->box.flags &= ~(uint32_t)(BOX_IS_SAVING | BOX_FROZEN_AT_END);
    digest_layers(dir, info->template_digest);
    if (saving_notes_keep(k, b, dir, changed, e) < 0)
        return -1;
    return write_record(dir, info, changed, e);
}
