/* Files as they are, of any size: one buffer holds what is on its way. An extension of the
 * document. */

#include "cove/mem.h"
#include "fcgi/check.h"
#include "fcgi/dialects/executor.h"
#include "fcgi/transfer.h"

static int decode_path(struct request *req, const char **ret, struct cove_err *e)
{
    *ret = request_query(req, "path");
    return check_query_path("path", *ret, e);
}

/* ------------------------------------------------------------------ GET */

int executor_get_raw(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    AUTO_CLOSE int fd = -1;
    struct box_stat st;
    const char *path;
    int rc;

    req->note.operation = "raw_file";
    if (decode_path(req, &path, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = core_file_open(&session, core_default_user(&session), path, &fd, &st, e);
    core_session_close(&session);
    if (rc < 0)
        return executor_fail(e);
    reply_header(rep, "Content-Type", "application/octet-stream");
    transfer_send(req, rep, fd, st.bytes);
    return 0;
}

/* ------------------------------------------------------------------ PUT */

int executor_put_raw(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct core_file file;
    const char *path;
    int rc;

    req->note.operation = "raw_file";
    if (decode_path(req, &path, e) < 0 || executor_open(req, &session, e) < 0)
        return -1;
    rc = core_file_create(&session, core_default_user(&session), path,
                          request_query(req, "parents") != NULL, &file, e);
    if (rc == 0) {
        rc = transfer_receive(req, &file, e) < 0 || core_file_commit(&file, e) < 0 ? -1 : 0;
        core_file_done(&file);
    }
    core_session_close(&session);
    if (rc < 0)
        return executor_fail(e);
    return executor_reply(rep, &(struct executor_result){
                                   .success = true,
                                   .bytes = (int64_t)file.written,
                                   .has_bytes = true,
                               });
}
