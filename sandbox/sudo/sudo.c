/*
 * cove-sudo: `sudo` inside a sandbox, for templates that have none of their own.
 *
 *   privilege  set-uid root of the sandbox's user namespace, which is nobody on the host
 *   does       becomes the user that was asked for, in place, and executes the command
 *   never      asks for a password, reads a configuration, stays beside the command
 *
 * Its only check is who may use it: users of a sandbox that are neither root nor `user` nor in the group
 * sudo, wheel or admin are refused. It executes
 * the command in its own process, so descriptors, terminal, signals, cgroup, seccomp filter and the
 * policy's view of every execve are those of the caller, and the exit status needs no passing on.
 */
#include "config.h" /* _GNU_SOURCE */

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/text.h"
#include "sandbox/init/init_private.h"

#define SAFE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { EXIT_OURS = 1, ENV_MAX = 4096, SHELL_TEXT_MAX = 128 * 1024 };

struct sudo {
    const char *user, *group, *cwd, *keep; /* keep: names of --preserve-env=, by commas */
    bool keep_all, set_home, login, shell, background, keep_groups;
    int close_from;
    struct user caller, target;
    gid_t gid;
    char **vars; /* NAME=VALUE words before the command, */
    size_t var_count;
    char **argv; /* and the command itself */
    char *env[ENV_MAX];
    size_t env_count;
};

static _Noreturn __attribute__((format(printf, 1, 2))) void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("sudo: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(EXIT_OURS);
}

/* --------------------------------------------------------------- who may, and as whom */

static bool is_allowed(const struct user *caller)
{
    static const char *const groups[] = { "sudo", "wheel", "admin" };
    gid_t gid;

    if (caller->uid == 0 || strcmp(caller->name, "user") == 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        if (group_find(groups[i], &gid) == 0)
            for (size_t k = 0; k < caller->group_count; k++)
                if (caller->groups[k] == gid)
                    return true;
    return false;
}

/* A copy that somebody made set-uid on the host would be a way to the host's root. There alone all
   4,294,967,295 ids are mapped. */
static void refuse_on_the_host(void)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    unsigned long inside, outside, count;

    if (!map || fscanf(map, "%lu %lu %lu", &inside, &outside, &count) != 3 ||
        count > UINT32_MAX / 2)
        die("this sudo is for the inside of a sandbox only");
    fclose(map);
}

static void find_caller(struct user *ret)
{
    struct cove_err e = { 0 };
    char number[16];

    if (geteuid() != 0)
        die("no set-uid rights: the caller runs with no_new_privs, or this file is not set-uid "
            "root");
    snprintf(number, sizeof(number), "%u", getuid());
    if (user_find(number, ret, &e) < 0)
        die("%s", e.msg);
    if (!is_allowed(ret))
        die("%s may not use sudo: only root, user and the groups sudo, wheel and admin may",
            ret->name);
}

static void find_target(struct sudo *s)
{
    const char *name = s->user ? s->user : s->group ? s->caller.name : "root";
    struct cove_err e = { 0 };

    if (user_find(name[0] == '#' ? name + 1 : name, &s->target, &e) < 0)
        die("unknown user %s", name);
    s->gid = s->target.gid;
    if (s->group && group_find(s->group[0] == '#' ? s->group + 1 : s->group, &s->gid) < 0)
        die("unknown group %s", s->group);
}

/* --------------------------------------------------------------- the command's environment */

static bool in_list(const char *list, const char *name, size_t len)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");

        if (n == len && memcmp(at, name, len) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* Variables of the terminal and the language are kept, as with any sudo. */
static bool is_kept(const struct sudo *s, const char *var)
{
    static const char always[] = "TERM,COLORTERM,LANG,LANGUAGE,TZ,DISPLAY,XAUTHORITY,LS_COLORS,PS1";
    size_t len = strcspn(var, "=");

    return s->keep_all || strncmp(var, "LC_", 3) == 0 || in_list(always, var, len) ||
           in_list(s->keep, var, len);
}

static void put_env(struct sudo *s, char *var)
{
    size_t len = strcspn(var, "=") + 1;

    for (size_t i = 0; i < s->env_count; i++) {
        if (strncmp(s->env[i], var, len) == 0) {
            s->env[i] = var;
            return;
        }
    }
    if (s->env_count == ENV_MAX - 1)
        die("more than %d variables", ENV_MAX - 1);
    s->env[s->env_count++] = var;
}

static __attribute__((format(printf, 2, 3))) void set_env(struct sudo *s, const char *format, ...)
{
    va_list args;
    char *var;

    va_start(args, format);
    if (vasprintf(&var, format, args) < 0)
        die("out of memory");
    va_end(args);
    put_env(s, var);
}

static bool has_env(const struct sudo *s, const char *name_equals)
{
    for (size_t i = 0; i < s->env_count; i++)
        if (strncmp(s->env[i], name_equals, strlen(name_equals)) == 0)
            return true;
    return false;
}

static void make_env(struct sudo *s)
{
    const struct user *u = &s->target;

    for (char **var = environ; *var; var++)
        if (is_kept(s, *var))
            put_env(s, *var);
    set_env(s, "PATH=%s", SAFE_PATH);
    set_env(s, "USER=%s", u->name);
    set_env(s, "LOGNAME=%s", u->name);
    set_env(s, "SHELL=%s", u->shell);
    set_env(s, "MAIL=/var/mail/%s", u->name);
    if (s->set_home || s->login || !has_env(s, "HOME="))
        set_env(s, "HOME=%s", u->home);
    set_env(s, "SUDO_COMMAND=%s", s->argv[0]);
    set_env(s, "SUDO_USER=%s", s->caller.name);
    set_env(s, "SUDO_UID=%u", s->caller.uid);
    set_env(s, "SUDO_GID=%u", s->caller.gid);
    for (size_t i = 0; i < s->var_count; i++)
        put_env(s, s->vars[i]);
}

/* --------------------------------------------------------------- a shell as the command */

/* The words as one line for `sh -c`, each character that a shell might read otherwise escaped. */
static char *shell_line(char **words)
{
    char *text = malloc(SHELL_TEXT_MAX);
    size_t len = 0;

    if (!text)
        die("out of memory");
    for (; *words; words++) {
        for (const char *c = *words; *c; c++) {
            if (len > SHELL_TEXT_MAX - 4)
                die("the command is longer than %d bytes", SHELL_TEXT_MAX);
            if (!isalnum((unsigned char)*c) && !strchr("_-$", *c) && !((unsigned char)*c & 0x80))
                text[len++] = '\\';
            text[len++] = *c;
        }
        if (words[1])
            text[len++] = ' ';
    }
    text[len] = '\0';
    return text;
}

static void use_shell(struct sudo *s, char **words)
{
    const char *own = getenv("SHELL");
    char *shell = s->login || !own || !*own ? s->target.shell : (char *)own;
    char **argv = calloc(4, sizeof(char *));

    if (!argv)
        die("out of memory");
    argv[0] = shell;
    if (*words) {
        argv[1] = "-c";
        argv[2] = shell_line(words);
    }
    s->argv = argv;
}

/* --------------------------------------------------------------- becoming and executing */

static void become(const struct sudo *s)
{
    const struct user *u = &s->target;
    gid_t groups[MAX_GROUPS];

    memcpy(groups, u->groups, sizeof(groups));
    groups[0] = s->gid; /* users.c puts the user's own group first */
    if (!s->keep_groups && setgroups(u->group_count, groups) < 0)
        die("groups of %s: %s", u->name, strerror(errno));
    if (setresgid(s->gid, s->gid, s->gid) < 0 || setresuid(u->uid, u->uid, u->uid) < 0)
        die("becoming %s: %s", u->name, strerror(errno));
    if (s->cwd ? chdir(s->cwd) < 0 : s->login && chdir(u->home) < 0)
        die("%s: %s", s->cwd ? s->cwd : u->home, strerror(errno));
}

static _Noreturn void execute(struct sudo *s, const char *file)
{
    char name[256];

    if (s->login) { /* a shell whose name begins with "-" reads the profile */
        const char *slash = strrchr(file, '/');

        snprintf(name, sizeof(name), "-%s", slash ? slash + 1 : file);
        s->argv[0] = name;
    }
    execve(file, s->argv, s->env);
    die("unable to execute %s: %s", file, strerror(errno));
}

static _Noreturn void search_and_execute(struct sudo *s)
{
    const char *name = s->argv[0];
    char file[PATH_MAX];

    if (strchr(name, '/')) {
        if (access(name, F_OK) < 0)
            die("%s: command not found", name);
        execute(s, name);
    }
    for (const char *dir = SAFE_PATH; *dir;) {
        size_t len = strcspn(dir, ":");
        struct stat st;

        snprintf(file, sizeof(file), "%.*s/%s", (int)len, dir, name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111))
            execute(s, file);
        dir += len + (dir[len] == ':');
    }
    die("%s: command not found", name);
}

static void into_background(void)
{
    pid_t pid = fork();

    if (pid < 0)
        die("starting in the background: %s", strerror(errno));
    if (pid > 0)
        exit(0);
}

/* --------------------------------------------------------------- options */

static const char help[] =
    "usage: sudo [-bEHinPs] [-C number] [-D directory] [-g group] [-u user] [NAME=VALUE] command\n"
    "       sudo -h | -K | -k | -l | -V | -v\n"
    "The sudo of a cove sandbox: it asks for no password.\n";

static _Noreturn void list_rights(const struct sudo *s)
{
    printf("User %s may run the following commands here:\n    (ALL : ALL) NOPASSWD: ALL\n",
           s->caller.name);
    exit(0);
}

static void parse_number(const char *text, int *ret)
{
    uint64_t n;

    if (text_parse_u64(text, &n, NULL) < 0 || n < 3 || n > 1 << 20)
        die("-C wants a number from 3 on, not '%s'", text);
    *ret = (int)n;
}

/* Returns the first word that is no option. Options that only make sense with passwords (-n, -S, -A, -p, -k)
   are accepted and have no effect. */
static int parse_options(struct sudo *s, int argc, char **argv, char *ret_alone)
{
    static const struct option names[] = {
        { "askpass", 0, 0, 'A' },
        { "background", 0, 0, 'b' },
        { "bell", 0, 0, 'B' },
        { "chdir", 1, 0, 'D' },
        { "close-from", 1, 0, 'C' },
        { "group", 1, 0, 'g' },
        { "help", 0, 0, 'h' },
        { "list", 0, 0, 'l' },
        { "login", 0, 0, 'i' },
        { "no-update", 0, 0, 'N' },
        { "preserve-env", 2, 0, 'E' },
        { "preserve-groups", 0, 0, 'P' },
        { "prompt", 1, 0, 'p' },
        { "remove-timestamp", 0, 0, 'K' },
        { "set-home", 0, 0, 'H' },
        { "shell", 0, 0, 's' },
        { "stdin", 0, 0, 'S' },
        { "non-interactive", 0, 0, 'n' },
        { "user", 1, 0, 'u' },
        { "reset-timestamp", 0, 0, 'k' },
        { "validate", 0, 0, 'v' },
        { "version", 0, 0, 'V' },
        { 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "+AbBC:D:Eg:hHiKklnNp:PsSu:vV", names, NULL)) != -1) {
        switch (c) {
        case 'b':
            s->background = true;
            break;
        case 'C':
            parse_number(optarg, &s->close_from);
            break;
        case 'D':
            s->cwd = optarg;
            break;
        case 'E':
            s->keep_all |= !optarg;
            s->keep = optarg ? optarg : s->keep;
            break;
        case 'g':
            s->group = optarg;
            break;
        case 'H':
            s->set_home = true;
            break;
        case 'i':
            s->login = true;
            break;
        case 'P':
            s->keep_groups = true;
            break;
        case 's':
            s->shell = true;
            break;
        case 'u':
            s->user = optarg;
            break;
        case 'h':
        case 'K':
        case 'k':
        case 'l':
        case 'v':
        case 'V':
            *ret_alone = (char)c;
            break;
        case '?':
            fputs(help, stderr);
            exit(EXIT_OURS);
        default:
            break;
        }
    }
    return optind;
}

/* Options that do something without a command. */
static void do_alone(const struct sudo *s, char option, bool has_command)
{
    if (option == 'h') {
        fputs(help, stdout);
        exit(0);
    }
    if (option == 'V') {
        printf("sudo of cove %s\n", COVE_VERSION);
        exit(0);
    }
    if (option == 'l')
        list_rights(s);
    if (option == 'K' || option == 'v' || (option == 'k' && !has_command))
        exit(0);
}

static void take_command(struct sudo *s, char **words)
{
    s->vars = words;
    while (*words && strchr(*words, '=') && **words != '=' && **words != '/') {
        words++;
        s->var_count++;
    }
    if (s->login || s->shell) {
        use_shell(s, words);
    } else if (*words) {
        s->argv = words;
    } else {
        fputs(help, stderr);
        exit(EXIT_OURS);
    }
}

int main(int argc, char **argv)
{
    static struct sudo s;
    char alone = 0;
    int first;

    if (argc < 1)
        return EXIT_OURS;
    refuse_on_the_host();
    first = parse_options(&s, argc, argv, &alone);
    find_caller(&s.caller);
    do_alone(&s, alone, first < argc);
    find_target(&s);
    take_command(&s, argv + first);
    make_env(&s);
    umask(umask(0) | 022);
    if (s.close_from)
        closefrom(s.close_from);
    become(&s);
    if (s.background)
        into_background();
    search_and_execute(&s);
}
