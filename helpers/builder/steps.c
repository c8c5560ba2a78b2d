/*
 * The steps of a build. RUN is the tenant's own command. What the other steps do in the sandbox is a
 * small script each, which runs there as root: nothing of the tenant's files is touched from outside.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/dialect.h"
#include "cove/end.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"
#include "process/audit_send.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *arg(const struct build_step *s, size_t i)
{
    return i < s->arg_count ? s->args[i] : "";
}

static bool is(const struct build_step *s, const char *kind)
{
    return strcmp(s->kind, kind) == 0;
}

bool step_changes_files(const struct build_step *s)
{
    return is(s, "RUN") || is(s, "COPY");
}

void step_describe(const struct build_step *s, char *out, size_t size)
{
    size_t len = (size_t)snprintf(out, size, "%s", s->kind);

    for (size_t i = 0; i < s->arg_count && len < size; i++)
        if (*s->args[i])
            len += (size_t)snprintf(out + len, size - len, " %s", s->args[i]);
}

/* ------------------------------------------------------------------ scripts of cove's own */

static const char user_script[] =
    "set -e; n=$1\n"
    "while IFS=: read -r a _; do [ \"$a\" != \"$n\" ] || exit 0; done < /etc/passwd\n"
    "u=1000; while cut -d: -f3 /etc/passwd /etc/group | grep -qx $u; do u=$((u+1)); done\n"
    "s=/bin/sh; [ -x /bin/bash ] && s=/bin/bash\n"
    "echo \"$n:x:$u:$u::/home/$n:$s\" >> /etc/passwd\n"
    "echo \"$n:x:$u:\" >> /etc/group\n"
    "[ ! -e /etc/shadow ] || echo \"$n::19000:0:99999:7:::\" >> /etc/shadow\n"
    "sed -i -e \"/^\\(sudo\\|wheel\\):.*:\\$/{s/\\$/$n/;b}\" -e "
    "\"/^\\(sudo\\|wheel\\):/s/\\$/,$n/\" /etc/group\n"
    "if [ -d /etc/sudoers.d ]; then echo \"$n ALL=(ALL) NOPASSWD: ALL\" > \"/etc/sudoers.d/$n\"; "
    "fi\n"
    "mkdir -p \"/home/$n\"\n"
    "[ ! -d /etc/skel ] || cp -a /etc/skel/. \"/home/$n/\"\n"
    "chown -R $u:$u \"/home/$n\"\n";

static const char workdir_script[] = "set -e; top=; q=$1\n"
                                     "while [ ! -e \"$q\" ]; do top=$q; q=$(dirname \"$q\"); done\n"
                                     "mkdir -p \"$1\"\n"
                                     "if [ -n \"$top\" ]; then chown -R \"$2\" \"$top\"; chgrp -R "
                                     "\"$(id -g \"$2\")\" \"$top\"; fi\n";

/* $1 the path in the archive, $2 the destination, $3 the owner, $4 the mode, $5 "z" for gzip. */
static const char copy_script[] =
    "set -e; t=$(mktemp -d /tmp/.cove-copy.XXXXXX); trap 'rm -rf \"$t\"' EXIT\n"
    "tar -x${5}f - -C \"$t\"\n"
    "s=$t/$1; d=$2; o=$3; case $o in *:*) ;; *) o=$o:$(id -gn \"$o\" 2>/dev/null || echo \"$o\");; "
    "esac\n"
    "if [ ! -e \"$s\" ] && [ ! -L \"$s\" ]; then echo \"'$1' is not in the uploaded files\" >&2; "
    "exit 1; fi\n"
    "chown -Rh \"$o\" \"$s\"\n"
    "[ -z \"$4\" ] || find \"$s\" ! -type l -exec chmod \"$4\" {} +\n"
    "if [ -d \"$s\" ] && [ ! -L \"$s\" ]; then\n"
    "  if [ ! -d \"$d\" ]; then mkdir -p \"$d\"; chown \"$o\" \"$d\"; fi\n"
    "  find \"$s\" -mindepth 1 -maxdepth 1 -exec cp -a {} \"$d/\" \\;\n"
    "else\n"
    "  case $d in */) mkdir -p \"$d\"; d=$d${s##*/};; *) mkdir -p \"$(dirname \"$d\")\";; esac\n"
    "  if [ -d \"$d\" ]; then d=$d/${s##*/}; fi\n"
    "  rm -rf \"$d\"; cp -a \"$s\" \"$d\"\n"
    "fi\n";

int step_run_script(struct build_job *j, const char *script, const char *const args[5], int input,
                    struct buf *output)
{
    const char *const argv[] = { "/bin/sh", "-c",    script,  "cove",  args[0],
                                 args[1],   args[2], args[3], args[4], NULL };
    const struct build_command c = {
        .argv = argv, .cwd = "/", .own = true, .quiet = true, .input = input, .output = output
    };
    struct cove_err err = { 0 };
    struct cove_end end;
    char last[256], how[128];

    if (command_run(j, &c, &end, last, &err) < 0)
        return job_fail_err(j, &err);
    if (end_exit_code(&end) == 0 && !end.signal)
        return 0;
    end_describe(&end, how, sizeof(how));
    return job_fail(j, "%s", last[0] ? last : how);
}

/* Makes the user in the sandbox, if it does not exist there. */
static int step_make_user(struct build_job *j, const char *name)
{
    const char *const args[5] = { name, "", "", "", "" };

    return step_run_script(j, user_script, args, -1, NULL);
}

/* ------------------------------------------------------------------ variables */

static const char *look_up(const struct build_job *j, const char *name, size_t len)
{
    for (size_t i = 0; i < j->env_count; i++)
        if (strncmp(j->env[i], name, len) == 0 && j->env[i][len] == '=')
            return j->env[i] + len + 1;
    return len == 4 && strncmp(name, "PATH", 4) == 0 ? DEFAULT_PATH : "";
}

/* Expands $NAME and ${NAME}. A backslash keeps the next character as it is. */
static void expand(const struct build_job *j, const char *text, struct buf *out)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    for (; *text; text++) {
        bool braced = text[0] == '$' && text[1] == '{';
        const char *name = text + 1 + braced;
        size_t len = *text == '$' ? strspn(name, letters) : 0;

        if (*text == '\\' && (text[1] == '$' || text[1] == '\\')) {
            buf_add_char(out, *++text);
        } else if (len > 0 && (!braced || name[len] == '}')) {
            buf_add_str(out, look_up(j, name, len));
            text = name + len - !braced;
        } else {
            buf_add_char(out, *text);
        }
    }
}

static int set_variable(struct build_job *j, const char *name, const char *value)
{
    AUTO_BUF struct buf text = BUF(MANIFEST_COMMAND_MAX);
    size_t len = strlen(name), i = 0;

    buf_addf(&text, "%s=", name);
    expand(j, value, &text);
    if (text.overflow || !len || strpbrk(name, "= \n\t"))
        return job_fail(j, "variable '%.60s' is longer than %d bytes, or its name is not valid",
                        name, MANIFEST_COMMAND_MAX);
    while (i < j->env_count && (strncmp(j->env[i], name, len) != 0 || j->env[i][len] != '='))
        i++;
    if (i == MANIFEST_ENV_MAX)
        return job_fail(j, "more than %d variables", MANIFEST_ENV_MAX);
    if (i == j->env_count)
        j->env_count++;
    free(j->env[i]);
    j->env[i] = strdup(text.data);
    return 0;
}

/* ------------------------------------------------------------------ what a step leaves behind */

/* Of "name:group" only the name counts: the group is always the user's own. */
static int set_user(struct build_job *j, const char *name)
{
    size_t len = strcspn(name, ":");

    if (len == 0 || len > 32 || name[0] == '-' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") < len)
        return job_fail(j, "USER '%.60s' is not a valid user name", name);
    snprintf(j->user, sizeof(j->user), "%.*s", (int)len, name);
    return 0;
}

static int join(struct build_job *j, const char *path, char out[MSG_PATH_MAX])
{
    AUTO_BUF struct buf text = BUF(MSG_PATH_MAX - 1);

    if (*path != '/')
        buf_addf(&text, "%s/", strcmp(j->workdir, "/") == 0 ? "" : j->workdir);
    expand(j, path, &text);
    if (text.overflow || !text.data || strpbrk(text.data, "\n\t"))
        return job_fail(j, "'%.60s' is not a valid path", path);
    text_copy(out, MSG_PATH_MAX, text.data);
    return 0;
}

int step_note(struct build_job *j, const struct build_step *s)
{
    char path[MSG_PATH_MAX];

    if (is(s, "USER"))
        return set_user(j, arg(s, 0));
    if (is(s, "WORKDIR")) {
        if (join(j, arg(s, 0), path) < 0)
            return -1;
        text_copy(j->workdir, sizeof(j->workdir), path);
    }
    for (size_t i = 0; is(s, "ENV") && i < s->arg_count; i += 2)
        if (set_variable(j, s->args[i], arg(s, i + 1)) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ RUN */

static void audit(struct build_job *j, const char *event, const struct policy_result *r,
                  const char *command)
{
    struct keeper_audit_entry entry = {
        .event = event,
        .dialect = dialect_name(j->build->dialect),
        .tenant = j->build->tenant,
        .key = j->build->key,
        .sandbox = j->box,
        .rule = r ? r->rule : NULL,
        .form = r ? policy_form_name(r->form) : NULL,
        .command = command,
    };
    struct cove_err err = { 0 };

    if (j->builder->config.audit_file[0] && audit_send(&j->keeper, &entry, &err) < 0)
        log_error("audit line lost", &err, LOG_S("tenant", j->build->tenant));
}

static int permit(struct build_job *j, const char *command)
{
    const struct manifest *t = j->template;
    const struct policy_query q = { .dialect = dialect_name(j->build->dialect),
                                    .tenant = j->build->tenant,
                                    .template = t->policy ? t->policy : t->name,
                                    .profile = t->seccomp };
    const struct policy *policy = policy_set_policy(j->policies->value);
    struct policy_result r = { 0 };

    policy_check(policy, &q, command, strlen(command), &r);
    if (r.denied) {
        audit(j, "refused", &r, command);
        return job_fail(j, "failed to run command '%.200s': refused by rule '%s': %s", command,
                        r.rule, r.reason);
    }
    if (policy_audit_all(policy, &q))
        audit(j, "ran", NULL, command);
    return 0;
}

static int fail_run(struct build_job *j, const char *command, const char *user,
                    const struct cove_err *e)
{
    if (e->code == COVE_NOT_FOUND && strstr(e->msg, "user"))
        return job_fail(j,
                        "failed to run command '%.200s': command failed: unauthenticated: "
                        "invalid username: '%.60s'",
                        command, user);
    return job_fail(j, "failed to run command '%.200s': command failed: %s", command, e->msg);
}

static int run(struct build_job *j, const struct build_step *s)
{
    const char *command = arg(s, 0), *user = *arg(s, 1) ? arg(s, 1) : j->user;
    const struct build_command c = {
        .text = command, .user = user, .cwd = j->workdir, .input = -1
    };
    struct cove_err err = { 0 };
    struct cove_end end;
    char last[256], how[128];

    if (permit(j, command) < 0)
        return -1;
    if (command_run(j, &c, &end, last, &err) < 0)
        return fail_run(j, command, user, &err);
    if (end_exit_code(&end) == 0 && !end.signal)
        return 0;
    end_describe(&end, how, sizeof(how));
    if (!end.signal && end.cause == END_OWN)
        snprintf(how, sizeof(how), "exit status %d", end.exit_code);
    return job_fail(j, "failed to run command '%.200s': %s%s%s", command, how, last[0] ? ": " : "",
                    last);
}

/* ------------------------------------------------------------------ COPY */

/* Of "src/app/x*.js" the part before the first component with a wildcard: "src/app". */
static void plain_prefix(const char *src, char out[MSG_PATH_MAX])
{
    size_t len = strcspn(src, "*?[{");

    while (strncmp(src, "./", 2) == 0 && len >= 2) {
        src += 2;
        len -= 2;
    }
    if (src[len])
        while (len > 0 && src[len - 1] != '/')
            len--;
    while (len > 0 && src[len - 1] == '/')
        len--;
    snprintf(out, MSG_PATH_MAX, "%.*s", (int)len, len ? src : "");
    if (!out[0])
        text_copy(out, MSG_PATH_MAX, ".");
}

static bool has_dots(const char *path)
{
    for (const char *at = path; at && *at; at = strchr(at, '/'), at += at != NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2]))
            return true;
    return false;
}

static int copy(struct build_job *j, const struct build_step *s)
{
    const char *hash = s->files ? s->files : "";
    AUTO_CLOSE int fd = -1;
    unsigned char magic[2] = { 0, 0 };
    char src[MSG_PATH_MAX], dest[MSG_PATH_MAX];

    plain_prefix(arg(s, 0), src);
    if (src[0] == '/' || has_dots(src))
        return job_fail(j, "COPY '%.60s' leads out of the uploaded files", arg(s, 0));
    if (!*arg(s, 1) || join(j, arg(s, 1), dest) < 0)
        return *arg(s, 1) ? -1 : job_fail(j, "COPY has no destination");
    fd = files_is_hash(hash) ? files_open(j->builder, j->build->tenant, hash) : -1;
    if (fd < 0)
        return job_fail(j, "the files of COPY '%.60s' were not uploaded", arg(s, 0));
    if (pread(fd, magic, 2, 0) < 0)
        return job_fail(j, "the files of COPY '%.60s' cannot be read", arg(s, 0));
    const char *const args[5] = { src, dest, *arg(s, 2) ? arg(s, 2) : j->user, arg(s, 3),
                                  magic[0] == 0x1f && magic[1] == 0x8b ? "z" : "" };

    if (step_run_script(j, copy_script, args, fd, NULL) == 0)
        return 0;
    return job_fail(j, "failed to copy '%.100s': %.600s", arg(s, 0), j->reason);
}

/* ------------------------------------------------------------------ all kinds of steps */

int step_run(struct build_job *j, const struct build_step *s)
{
    char path[MSG_PATH_MAX];

    if (is(s, "RUN"))
        return *arg(s, 0) ? run(j, s) : job_fail(j, "RUN has no command");
    if (is(s, "COPY"))
        return copy(j, s);
    if (is(s, "USER"))
        return set_user(j, arg(s, 0)) < 0 || step_make_user(j, j->user) < 0 ? -1 : 0;
    if (is(s, "WORKDIR")) {
        if (join(j, arg(s, 0), path) < 0)
            return -1;
        const char *const args[5] = { path, j->user, "", "", "" };

        return step_run_script(j, workdir_script, args, -1, NULL) < 0
                   ? job_fail(j, "failed to make '%.100s': %.600s", path, j->reason)
                   : 0;
    }
    return is(s, "ENV") ? 0 : job_fail(j, "there is no step '%.20s'", s->kind);
}
