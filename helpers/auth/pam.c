#include "helpers/auth/pam.h"

#include <security/pam_appl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"

/* PAM takes "other" when a service has no file, and on Debian that lets every account in: so the
 * file must be there. */
static bool pam_service_exists(const char *dir, const char *service)
{
    char path[640];

    if (!*service || strchr(service, '/') || service[0] == '.')
        return false;
    snprintf(path, sizeof(path), "%s/%s", dir, service);
    return access(path, R_OK) == 0;
}

static bool answer(const struct pam_message *m, const char *password, struct pam_response *r)
{
    if (m->msg_style == PAM_TEXT_INFO || m->msg_style == PAM_ERROR_MSG)
        return true;
    /* We have only the password: a module that asks for more (a code, a new password) gets no answer. */
    if (m->msg_style != PAM_PROMPT_ECHO_OFF)
        return false;
    r->resp = strdup(password);
    return r->resp != NULL;
}

static int converse(int count, const struct pam_message **messages, struct pam_response **ret,
                    void *password)
{
    struct pam_response *responses;

    if (count <= 0 || count > PAM_MAX_NUM_MSG)
        return PAM_CONV_ERR;
    responses = calloc((size_t)count, sizeof(*responses));
    if (!responses)
        return PAM_BUF_ERR;
    for (int i = 0; i < count; i++) {
        if (answer(messages[i], password, &responses[i]))
            continue;
        for (int j = 0; j <= i; j++)
            free(responses[j].resp);
        free(responses);
        return PAM_CONV_ERR;
    }
    *ret = responses;
    return PAM_SUCCESS;
}

/* PAM does not delay failures here: backoff.c makes callers wait. */
static void no_delay(int status, unsigned delay_us, void *arg)
{
    (void)status;
    (void)delay_us;
    (void)arg;
}

static int step(pam_handle_t *pam, int rc, const char *what, struct cove_err *e)
{
    static const int noes[] = { PAM_AUTH_ERR,     PAM_USER_UNKNOWN,     PAM_MAXTRIES,
                                PAM_PERM_DENIED,  PAM_ACCT_EXPIRED,     PAM_NEW_AUTHTOK_REQD,
                                PAM_CRED_EXPIRED, PAM_CRED_INSUFFICIENT };

    if (rc == PAM_SUCCESS)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(noes); i++)
        if (noes[i] == rc)
            return cove_fail(e, COVE_UNAUTHORIZED, "%s: %s", what, pam_strerror(pam, rc));
    return cove_fail(e, COVE_INTERNAL, "%s: %s", what, pam_strerror(pam, rc));
}

int pam_ask(const struct pam_question *q, struct cove_err *e)
{
    const struct pam_conv conv = { converse, (void *)(uintptr_t)q->password };
    const void *user = NULL;
    pam_handle_t *pam = NULL;
    int rc, last;

    if (!pam_service_exists(q->dir, q->service))
        return cove_fail(e, COVE_UNSUPPORTED, "%s/%s is not there", q->dir, q->service);
    if (strcmp(q->dir, "/etc/pam.d") == 0)
        last = pam_start(q->service, q->user, &conv, &pam);
    else
        last = pam_start_confdir(q->service, q->user, &conv, q->dir, &pam);
    if (last != PAM_SUCCESS)
        return cove_fail(e, COVE_INTERNAL, "PAM does not start: %s", pam_strerror(pam, last));
    pam_set_item(pam, PAM_FAIL_DELAY, (const void *)no_delay);
    if (q->remote && *q->remote)
        pam_set_item(pam, PAM_RHOST, q->remote);
    last = pam_authenticate(pam, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK);
    rc = step(pam, last, "password", e);
    if (rc == 0) {
        last = pam_acct_mgmt(pam, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK);
        rc = step(pam, last, "account", e);
    }
    /* A module may have replaced the user's name. The caller would be admitted under the old one: refuse. */
    if (rc == 0 &&
        (pam_get_item(pam, PAM_USER, &user) != PAM_SUCCESS || !user || strcmp(user, q->user) != 0))
        rc = cove_fail(e, COVE_UNAUTHORIZED, "PAM knows this user by another name");
    pam_end(pam, last);
    return rc;
}
