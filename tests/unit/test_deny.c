/*
 * policy/deny/deny.c with the default policy: what is refused, where, by which rule and on which form.
 * Read the tables as the documentation of policy.conf.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/policy.h"

#define NOBODY NULL /* no rule refuses it */
#define RAW    POLICY_FORM_RAW
#define WORDS  POLICY_FORM_WORDS
#define ARGV   POLICY_FORM_ARGV
#define LIMIT  POLICY_FORM_LIMIT

static struct policy *load(const char *path)
{
    struct cove_err e = { 0 };
    struct policy *p = NULL;
    AUTO_FREE char *bundle = NULL;
    size_t len;

    if (policy_bundle_read(path, &bundle, &len, &e) < 0 || policy_compile(bundle, len, &p, &e) < 0)
        fail_msg("%s", e.msg);
    return p;
}

static struct policy *compile(const char *text)
{
    struct cove_err e = { 0 };
    struct policy *p = NULL;

    if (policy_compile(text, strlen(text), &p, &e) < 0)
        fail_msg("%s", e.msg);
    return p;
}

static struct policy_result check(const struct policy *p, const char *dialect, const char *command)
{
    struct policy_query q = { .dialect = dialect };
    struct policy_result r;

    policy_check(p, &q, command, strlen(command), &r);
    return r;
}

/* Each command as the execute dialect sees it, as another dialect (e2b) does, and on which form. */
static const struct {
    const char *text, *execute, *other;
    enum policy_form form;
    const char *because;
} cases[] = {
    /* 1. rm -rf, in all its spellings */
    { "rm -rf /", "rm-rf", "rm-root", WORDS, "the example of the document" },
    { "rm -fr /", "rm-rf", "rm-root", WORDS, "the other order" },
    { "rm -Rf /", "rm-rf", "rm-root", WORDS, "a capital R" },
    { "rm -r -f /", "rm-rf", "rm-root", WORDS, "apart" },
    { "rm -f -r /", "rm-rf", "rm-root", WORDS, "apart, the other order" },
    { "rm --recursive --force /", "rm-rf", "rm-root", WORDS, "long" },
    { "rm --force --recursive /", "rm-rf", "rm-root", WORDS, "long, the other order" },
    { "rm --rec --fo /", "rm-rf", "rm-root", WORDS, "abbreviated as getopt allows" },
    { "rm -r --force /", "rm-rf", "rm-root", WORDS, "mixed" },
    { "rm    -rf\t\t/", "rm-rf", "rm-root", WORDS, "extra blanks" },
    { "  rm -rf /", "rm-rf", "rm-root", WORDS, "a blank in front" },
    { "/bin/rm -rf /", "rm-rf", "rm-root", WORDS, "path in front" },
    { "/usr/bin/../bin/rm -rf /", "rm-rf", "rm-root", WORDS, "a longer path" },
    { "rm -vrf /", "rm-rf", "rm-root", WORDS, "with other letters" },
    { "rm / -rf", "rm-rf", "rm-root", WORDS, "options behind the name" },
    { "rm -r a b c -f", "rm-rf", NOBODY, WORDS, "far apart" },
    { "rm -rf /*", "rm-rf", "rm-root", WORDS, "all of the root" },
    { "rm -rf //", "rm-rf", "rm-root", WORDS, "two slashes" },
    { "rm -rf /.", "rm-rf", "rm-root", WORDS, "the root by another name" },
    { "rm -rf ~", "rm-rf", "rm-root", WORDS, "a whole home" },
    { "rm -rf ~/", "rm-rf", "rm-root", WORDS, "with a slash" },
    { "rm -rf $HOME", "rm-rf", "rm-root", WORDS, "by its variable" },
    { "rm -rf \"${HOME}\"/*", "rm-rf", "rm-root", WORDS, "all in it" },
    { "rm -rf /etc", "rm-rf", "rm-root", WORDS, "a system folder" },
    { "rm -rf a /usr b", "rm-rf", "rm-root", WORDS, "between others" },
    { "rm -r /", NOBODY, "rm-root", WORDS, "without -f the document does not mind" },
    { "rm -rf --no-preserve-root /x", "rm-rf", "rm-no-preserve-root", WORDS,
      "the option that says it" },
    { "rm -rf node_modules", "rm-rf", NOBODY, WORDS, "ordinary work elsewhere" },
    { "rm -rf ./dist ./build", "rm-rf", NOBODY, WORDS, "ordinary work elsewhere" },
    { "rm -rf /workspace/app/node_modules", "rm-rf", NOBODY, WORDS,
      "below the root is not the root" },
    { "rm -rf /tmp/x", "rm-rf", NOBODY, WORDS, "nor is /tmp/x" },
    { "rm -rf ~/.cache", "rm-rf", NOBODY, WORDS, "a part of a home is not all of it" },
    { "rm -rf .git && git init", "rm-rf", NOBODY, WORDS, "in a list" },

    /* 1, disguised */
    { "r''m -r\\f /", "rm-rf", "rm-root", WORDS, "quotes and backslashes" },
    { "\"rm\" '-rf' /", "rm-rf", "rm-root", WORDS, "quoted words" },
    { "\\rm -rf /", "rm-rf", "rm-root", WORDS, "the alias-escaping backslash" },
    { "rm -r\\\nf /", "rm-rf", "rm-root", WORDS, "a line that goes on" },
    { "rm \\\n  -rf \\\n  /", "rm-rf", "rm-root", WORDS, "over three lines" },
    { "rm$IFS-rf$IFS/", "rm-rf", "rm-root", WORDS, "$IFS" },
    { "rm${IFS}-rf${IFS}/", "rm-rf", "rm-root", WORDS, "${IFS}" },
    { "rm${IFS%??}-rf /", "rm-rf", "rm-root", WORDS, "a part of IFS" },
    { "r$@m -rf /", "rm-rf", "rm-root", WORDS, "an empty parameter" },
    { "$'\\162\\155' -rf /", "rm-rf", "rm-root", WORDS, "octal" },
    { "$'rm' $'\\x2drf' /", "rm-rf", "rm-root", WORDS, "hexadecimal" },
    { "${x:-rm} -rf /", "rm-rf", "rm-root", WORDS, "a default" },
    { "{rm,-rf,/}", "rm-rf", "rm-root", WORDS, "braces" },
    { "rm -{r,f} /", "rm-rf", "rm-root", WORDS, "braces in a word" },
    { "cd /tmp; rm -rf /", "rm-rf", "rm-root", WORDS, "after ;" },
    { "true && rm -rf /", "rm-rf", "rm-root", WORDS, "after &&" },
    { "false || rm -rf /", "rm-rf", "rm-root", WORDS, "after ||" },
    { "yes | rm -rf /", "rm-rf", "rm-root", WORDS, "after |" },
    { "sleep 1 & rm -rf /", "rm-rf", "rm-root", WORDS, "after &" },
    { "ls\nrm -rf /", "rm-rf", "rm-root", WORDS, "on the next line" },
    { "ls;rm -rf /;ls", "rm-rf", "rm-root", WORDS, "without blanks" },
    { "(rm -rf /)", "rm-rf", "rm-root", WORDS, "a subshell" },
    { "{ rm -rf /; }", "rm-rf", "rm-root", WORDS, "a group" },
    { "echo $(rm -rf /)", "rm-rf", "rm-root", WORDS, "a substitution" },
    { "echo \"$(rm -rf /)\"", "rm-rf", "rm-root", WORDS, "in double quotes" },
    { "echo `rm -rf /`", "rm-rf", "rm-root", WORDS, "backticks" },
    { "x=$(rm -rf /)", "rm-rf", "rm-root", WORDS, "an assignment" },
    { "cat <(rm -rf /)", "rm-rf", "rm-root", WORDS, "a process substitution" },
    { "cat <<EOF\n$(rm -rf /)\nEOF", "rm-rf", "rm-root", WORDS, "in a heredoc" },
    { "if true; then rm -rf /; fi", "rm-rf", "rm-root", WORDS, "if" },
    { "if rm -rf /; then ls; fi", "rm-rf", "rm-root", WORDS, "as the condition" },
    { "while :; do rm -rf /; done", "rm-rf", "rm-root", WORDS, "while" },
    { "for d in $list; do rm -rf $d; done", "rm-rf", NOBODY, WORDS,
      "for; what $d is, nobody knows" },
    { "case a in *) rm -rf /;; esac", "rm-rf", "rm-root", WORDS, "case" },
    { "f() { rm -rf /; }; f", "rm-rf", "rm-root", WORDS, "a function" },
    { "! rm -rf /", "rm-rf", "rm-root", WORDS, "not" },
    { "FOO=bar rm -rf /", "rm-rf", "rm-root", WORDS, "an assignment in front" },
    { ">log rm -rf /", "rm-rf", "rm-root", WORDS, "a redirection in front" },
    { "sh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sh -c" },
    { "bash -c \"rm -rf /\"", "rm-rf", "rm-root", WORDS, "bash -c" },
    { "bash -lc 'cd x; rm -rf /'", "rm-rf", "rm-root", WORDS, "bash -lc" },
    { "sh -ec 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sh -ec" },
    { "bash -c 'bash -c \"rm -rf /\"'", "rm-rf", "rm-root", WORDS, "twice" },
    { "dash -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "another shell" },
    { "zsh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "and another" },
    { "eval 'rm -rf /'", "rm-rf", "rm-root", WORDS, "eval" },
    { "eval rm -rf /", "rm-rf", "rm-root", WORDS, "eval of words" },
    { "sudo rm -rf /", "rm-rf", "rm-root", WORDS, "sudo" },
    { "sudo -u root -- rm -rf /", "rm-rf", "rm-root", WORDS, "sudo with options" },
    { "doas rm -rf /", "rm-rf", "rm-root", WORDS, "doas" },
    { "env rm -rf /", "rm-rf", "rm-root", WORDS, "env" },
    { "env -i PATH=/bin rm -rf /", "rm-rf", "rm-root", WORDS, "env with options" },
    { "nohup rm -rf / &", "rm-rf", "rm-root", WORDS, "nohup" },
    { "timeout 5 rm -rf /", "rm-rf", "rm-root", WORDS, "timeout" },
    { "timeout -s KILL 5 rm -rf /", "rm-rf", "rm-root", WORDS, "timeout with options" },
    { "nice -n 19 rm -rf /", "rm-rf", "rm-root", WORDS, "nice" },
    { "ionice -c 3 rm -rf /", "rm-rf", "rm-root", WORDS, "ionice" },
    { "setsid rm -rf /", "rm-rf", "rm-root", WORDS, "setsid" },
    { "stdbuf -oL rm -rf /", "rm-rf", "rm-root", WORDS, "stdbuf" },
    { "time rm -rf /", "rm-rf", "rm-root", WORDS, "time" },
    { "exec rm -rf /", "rm-rf", "rm-root", WORDS, "exec" },
    { "command rm -rf /", "rm-rf", "rm-root", WORDS, "command" },
    { "busybox rm -rf /", "rm-rf", "rm-root", WORDS, "busybox" },
    { "ls / | xargs rm -rf", "rm-rf", NOBODY, WORDS, "xargs; its input is not known" },
    { "find / -exec rm -rf {} +", "rm-rf", NOBODY, WORDS, "find -exec" },
    { "find . -type d -execdir rm -rf / \\;", "rm-rf", "rm-root", WORDS, "find -execdir" },
    { "watch 'rm -rf /'", "rm-rf", "rm-root", WORDS, "watch" },
    { "sudo env A=1 timeout 5 sh -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "one in the other" },
    { "echo 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "echo into a shell" },
    { "echo 'rm -rf /' | sudo bash -s", "rm-rf", "rm-root", WORDS, "as root" },
    { "bash <<< 'rm -rf /'", "rm-rf", "rm-root", WORDS, "a here-string" },
    { "bash <<EOF\nrm -rf /\nEOF", "rm-rf", "rm-root", WORDS, "a heredoc for a shell" },
    { "bash -c '\"$@\"' x rm -rf /", "rm-rf", "rm-root", WORDS,
      "parameters that become a command" },
    { "trap 'rm -rf /' EXIT", "rm-rf", "rm-root", WORDS, "at the end" },
    { "coproc rm -rf /", "rm-rf", "rm-root", WORDS, "beside" },
    { "rm '' -rf /", "rm-rf", "rm-root", WORDS, "an empty word in between" },
    { "rm 'a\nb' -rf /", "rm-rf", "rm-root", WORDS, "a newline in a word" },
    { "'rm -rf /", "rm-rf", "rm-root", WORDS, "a blank in a word is a blank: we err on this side" },
    { "ls; rm -rf / 'x", "rm-rf", "rm-root", WORDS, "but what stands before it counts" },

    /* 1, only mentioned */
    { "echo \"rm -rf is bad\"", NOBODY, NOBODY, RAW, "quoted data" },
    { "echo rm -rf /", NOBODY, NOBODY, RAW, "unquoted data" },
    { "grep -r \"rm -rf\" .", NOBODY, NOBODY, RAW, "searching for it" },
    { "git commit -m 'no more rm -rf /'", NOBODY, NOBODY, RAW, "a message" },
    { "cat <<'EOF' > clean.sh\nrm -rf /\nEOF", NOBODY, NOBODY, RAW, "writing it to a file" },
    { "ls # rm -rf /", NOBODY, NOBODY, RAW, "a comment" },
    { "man rm; which rm; command -v rm", NOBODY, NOBODY, RAW, "asking about it" },
    { "farm -rf /", NOBODY, NOBODY, RAW, "a word that only ends in rm" },
    { "git rm -rf old", NOBODY, NOBODY, RAW, "another program's rm" },
    { "docker run --rm -f x", NOBODY, NOBODY, RAW, "an option called rm" },
    { "npm run rm -- -rf", NOBODY, NOBODY, RAW, "a script called rm" },
    { "rm file.txt", NOBODY, NOBODY, RAW, "one file" },
    { "rm -f file.txt", NOBODY, NOBODY, RAW, "without asking" },
    { "rm -r build", NOBODY, NOBODY, RAW, "with asking" },
    { "rm -- my-rf-file", NOBODY, NOBODY, RAW, "a name with rf in it" },
    { "rmdir x; rmmod y", NOBODY, NOBODY, RAW, "other commands" },

    /* 1, by variables that the text itself sets */
    { "x=rm; $x -rf /", "rm-rf", "rm-root", WORDS, "a variable" },
    { "x=rm; \"${x}\" -rf /", "rm-rf", "rm-root", WORDS, "in quotes and braces" },
    { "a=r b=m; $a$b -rf /", "rm-rf", "rm-root", WORDS, "two of them" },
    { "export x=rm && $x -rf /", "rm-rf", "rm-root", WORDS, "export" },
    { "declare -r x=rm; $x -rf /", "rm-rf", "rm-root", WORDS, "declare" },
    { "x='rm -rf /'; $x", "rm-rf", "rm-root", WORDS, "all of it, split into words" },
    { "x=\"rm -rf /\"; eval \"$x\"", "rm-rf", "rm-root", WORDS, "given to eval" },
    { "x=\"rm -rf /\"; sh -c \"$x\"", "rm-rf", "rm-root", WORDS, "given to a shell" },
    { "x=rm sh -c '$x -rf /'", "rm-rf", "rm-root", WORDS, "for one command only" },
    { "export x=rm; bash -c '$x -rf /'", "rm-rf", "rm-root", WORDS, "inherited" },
    { "x=rm; y=$x; $y -rf /", "rm-rf", "rm-root", WORDS, "handed on" },
    { "x=r; x+=m; $x -rf /", "rm-rf", "rm-root", WORDS, "appended" },
    { "x=-rf; rm $x /", "rm-rf", "rm-root", WORDS, "the options" },
    { "x=/; rm -rf $x", "rm-rf", "rm-root", WORDS, "the root" },
    { "x=r; $x''m -rf /", "rm-rf", "rm-root", WORDS, "a part of the name" },
    { "cmd=(rm -rf /); \"${cmd[@]}\"", "rm-rf", "rm-root", WORDS, "an array" },
    { "a=(ls rm); ${a[1]} -rf /", "rm-rf", "rm-root", WORDS, "one of its elements" },
    { "a=(1 # it's\n2); rm -rf /", "rm-rf", "rm-root", WORDS,
      "a quote in a comment in an array is none" },
    { "set -- rm -rf /; \"$@\"", "rm-rf", "rm-root", WORDS, "parameters" },
    { "set -- -rf / rm; $3 $1 $2", "rm-rf", "rm-root", WORDS, "by number" },
    { "for x in rm; do $x -rf /; done", "rm-rf", "rm-root", WORDS, "a loop's variable" },
    { "for d in /bin /etc; do rm -rf $d; done", "rm-rf", "rm-root", WORDS, "each of its values" },
    { "for d in /*; do rm -rf $d; done", "rm-rf", "rm-root", WORDS, "a pattern" },
    { "x=RM; ${x,,} -rf /", "rm-rf", "rm-root", WORDS, "in small letters" },
    { "x=xrmy; ${x:1:2} -rf /", "rm-rf", "rm-root", WORDS, "a part of it" },
    { "x=r_m; ${x/_/} -rf /", "rm-rf", "rm-root", WORDS, "with something replaced" },
    { "x=rmx; ${x%x} -rf /", "rm-rf", "rm-root", WORDS, "without its end" },
    { "x=(rm); x+=(-rf /); \"${x[@]}\"", "rm-rf", "rm-root", WORDS, "an array that grows" },
    { "env -S 'rm -r' -f /", "rm-rf", "rm-root", WORDS, "a text and words behind it" },
    { "$(type -P rm) -rf /", "rm-rf", "rm-root", WORDS, "asked for its place" },
    { "yes 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "again and again" },
    { "x=rm y=x; ${!y} -rf /", "rm-rf", "rm-root", WORDS, "by way of another" },
    { ": ${x:=rm}; $x -rf /", "rm-rf", "rm-root", WORDS, "a default that stays" },
    { "IFS=,; x=rm,-rf,/; $x", "rm-rf", "rm-root", WORDS, "another IFS" },
    { "read -r a b <<< 'rm -rf'; $a $b /", "rm-rf", "rm-root", WORDS, "read from a here-string" },
    { "printf -v x rm; $x -rf /", "rm-rf", "rm-root", WORDS, "printf -v" },
    { "$SHELL -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "the shell by its variable" },
    { "$0 -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "and by its name" },
    { "r${nothing}m -rf /", "rm-rf", "rm-root", WORDS, "a variable that nobody sets is empty" },
    { "r$nothing''m -rf /", "rm-rf", "rm-root", WORDS, "likewise" },
    { "rm -r${z}f /", "rm-rf", "rm-root", WORDS, "in an option" },
    { "$SUDO rm -rf /", "rm-rf", "rm-root", WORDS, "before the command" },
    { "f() { \"$@\"; }; f rm -rf /", "rm-rf", "rm-root", WORDS, "a function's parameters" },
    { "f() { $1 -rf /; }; f rm", "rm-rf", "rm-root", WORDS, "one of them" },
    { "f() { rm \"$@\"; }; f -rf /", "rm-rf", "rm-root", WORDS, "as arguments" },
    { "alias z=rm\nz -rf /", "rm-rf", "rm-root", WORDS, "an alias" },
    { "sh -c '$0 -rf /' rm", "rm-rf", "rm-root", WORDS, "a text's parameters" },
    { "sh -c 'rm $1 $2' x -rf /", "rm-rf", "rm-root", WORDS, "by number" },
    { "rm -rf \"$dir\"/*", "rm-rf", NOBODY, WORDS,
      "what nobody knows is not taken for empty in a file's name" },
    { "rm -rf ${BUILD_DIR}/", "rm-rf", NOBODY, WORDS, "or this would be the root" },
    { "x=rm; echo $x -rf /", NOBODY, NOBODY, RAW, "as data" },
    { "x='rm -rf /'; echo \"$x\" > f", NOBODY, NOBODY, RAW, "as data" },
    { "x=rm; x=ls; $x -rf /", NOBODY, NOBODY, RAW, "the last one counts" },
    { "x=rm; unset x; $x -rf /", NOBODY, NOBODY, RAW, "or none" },
    { "x=rm; read x; $x -rf /", NOBODY, NOBODY, RAW, "what is read is not known" },
    { "x=rm ls; $x -rf /", NOBODY, NOBODY, RAW, "it was for ls only" },
    { "log() { echo \"$@\"; }; log rm -rf /", NOBODY, NOBODY, RAW, "a function that only prints" },
    { "alias rm='rm -i'", NOBODY, NOBODY, RAW, "an alias that is careful" },
    { "RM='rm -rf' make clean", NOBODY, NOBODY, RAW, "a setting of make" },
    { "sh -c 'echo \"$@\"' x rm -rf /", NOBODY, NOBODY, RAW, "parameters that are printed" },
    { "args=(-r -n); grep \"${args[@]}\" rm .", NOBODY, NOBODY, RAW, "options in an array" },
    { "f() { [ $1 -gt 0 ] && f $(($1 - 1)); }; f 5", NOBODY, NOBODY, RAW,
      "a function that calls itself" },

    /* 1, by what commands print */
    { "$(echo rm) -rf /", "rm-rf", "rm-root", WORDS, "echo" },
    { "`echo rm` -rf /", "rm-rf", "rm-root", WORDS, "in backticks" },
    { "x=$(printf rm); $x -rf /", "rm-rf", "rm-root", WORDS, "into a variable" },
    { "$(which rm) -rf /", "rm-rf", "rm-root", WORDS, "which" },
    { "r$(true)m -rf /", "rm-rf", "rm-root", WORDS, "nothing at all" },
    { "printf '%s\\n' 'rm -rf /' | sh", "rm-rf", "rm-root", WORDS, "printf into a shell" },
    { "printf '\\x72m -rf /' | sh", "rm-rf", "rm-root", WORDS, "with escapes" },
    { "echo -e '\\0162m -rf /' | sh", "rm-rf", "rm-root", WORDS, "of echo too" },
    { "echo 'rm -rf /' | cat | sh", "rm-rf", "rm-root", WORDS, "by way of cat" },
    { "echo cm0gLXJmIC8= | base64 -d | sh", NOBODY, NOBODY, RAW, "what exec-time policy is for" },
    { "sh <(echo rm -rf /)", "rm-rf", "rm-root", WORDS, "a process substitution as a script" },
    { "bash < <(echo 'rm -rf /')", "rm-rf", "rm-root", WORDS, "and as input" },
    { ". /dev/stdin <<< 'rm -rf /'", "rm-rf", "rm-root", WORDS, "source" },
    { "echo 'rm -rf /' | at now", "rm-rf", "rm-root", WORDS, "later" },
    { "echo / | xargs rm -rf", "rm-rf", "rm-root", WORDS, "what xargs reads" },
    { "echo -rf / | xargs rm", "rm-rf", "rm-root", WORDS, "the options too" },
    { "echo / | xargs -I{} sh -c 'rm -rf {}'", "rm-rf", "rm-root", WORDS, "put in its place" },
    { "echo cm0gLXJmIC8= | base64 -d", NOBODY, NOBODY, RAW, "nobody runs it" },
    { "echo 'rm -rf /' | tee notes | wc -c", NOBODY, NOBODY, RAW, "nor this" },
    { "echo / | xargs ls", NOBODY, NOBODY, RAW, "xargs of something else" },
    { "git commit -m \"$(cat <<'E'\nrm -rf / is gone\nE\n)\"", NOBODY, NOBODY, RAW,
      "a message by heredoc" },

    /* 1, by other wrappers and groups */
    { "time { rm -rf /; }", "rm-rf", "rm-root", WORDS, "time of a group" },
    { "time -p rm -rf /", "rm-rf", "rm-root", WORDS, "time of a command" },
    { "coproc X { rm -rf /; }", "rm-rf", "rm-root", WORDS, "a named coprocess" },
    { "env - rm -rf /", "rm-rf", "rm-root", WORDS, "env with a lone dash" },
    { "env --split-string 'rm -rf /'", "rm-rf", "rm-root", WORDS, "env that splits" },
    { "chroot --userspec 0:0 / rm -rf /", "rm-rf", "rm-root", WORDS, "chroot with options" },
    { "flock x -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "flock with a text behind the file" },
    { "runuser -u nobody -- rm -rf /", "rm-rf", "rm-root", WORDS, "runuser" },
    { "su --session-command='rm -rf /' root", "rm-rf", "rm-root", WORDS, "su" },
    { "sg root 'rm -rf /'", "rm-rf", "rm-root", WORDS, "sg" },
    { "fd . -x rm -rf /", "rm-rf", "rm-root", WORDS, "fd" },
    { "parallel ::: 'rm -rf /'", "rm-rf", "rm-root", WORDS, "parallel" },
    { "/lib64/ld-linux-x86-64.so.2 /bin/rm -rf /", "rm-rf", "rm-root", WORDS,
      "the dynamic linker" },
    { "setarch x86_64 rm -rf /", "rm-rf", "rm-root", WORDS, "setarch" },
    { "choom -n 0 -- rm -rf /", "rm-rf", "rm-root", WORDS, "choom" },
    { "fish -c 'rm -rf /'", "rm-rf", "rm-root", WORDS, "yet another shell" },
    { "for ((i = 0; i < 1; i++)); do rm -rf /; done", "rm-rf", "rm-root", WORDS,
      "an arithmetic loop" },
    { "{rm,-rf,/{,}}", "rm-rf", "rm-root", WORDS, "braces in braces" },
    { "{rm,'-rf',/}", "rm-rf", "rm-root", WORDS, "with quotes in them" },
    { "{r,x}{m,y} -rf /", "rm-rf", "rm-root", WORDS, "two lists in a word" },
    { "r{m..m} -rf /", "rm-rf", "rm-root", WORDS, "a sequence" },
    { "rm -rf /home/user", "rm-rf", "rm-root", WORDS, "a home by its path" },
    { "rm -rf ~root", "rm-rf", "rm-root", WORDS, "by its owner" },
    { "rm -rf /./etc/", "rm-rf", "rm-root", WORDS, "a path round about" },
    { "rm -rf /usr/../", "rm-rf", "rm-root", WORDS, "and back" },
    { "rm -rf /*/", "rm-rf", "rm-root", WORDS, "all folders of the root" },
    { "command -v shutdown; type reboot", NOBODY, NOBODY, RAW, "asking for it" },
    { "touch file{1..2000}", NOBODY, NOBODY, RAW, "many words" },
    { "mkdir -p a/{b,c}/{d,e}", NOBODY, NOBODY, RAW, "folders" },
    { "ls | xargs -n1 echo rm -rf", NOBODY, NOBODY, RAW, "xargs of echo" },
    { "docker run --rm x rm -rf /tmp", NOBODY, NOBODY, RAW, "in another container" },

    /* 2. shutdown, 3. reboot */
    { "shutdown", "shutdown", "power", WORDS, "the word" },
    { "shutdown -h now", "shutdown", "power", WORDS, "with options" },
    { "sudo /sbin/shutdown now", "shutdown", "power", WORDS, "as root, path in front" },
    { "poweroff", "shutdown", "power", WORDS, "another name" },
    { "halt -p", "shutdown", "power", WORDS, "and another" },
    { "systemctl poweroff", "shutdown", "power", WORDS, "by systemd" },
    { "init 0", "shutdown", NOBODY, WORDS, "by init" },
    { "reboot", "reboot", "power", WORDS, "the word" },
    { "sudo reboot -f", "reboot", "power", WORDS, "with options" },
    { "systemctl --force reboot", "reboot", "power", WORDS, "by systemd" },
    { "init 6", "reboot", NOBODY, WORDS, "by init" },
    { "echo shutdown", NOBODY, NOBODY, RAW, "a mention" },
    { "grep reboot /var/log/syslog", NOBODY, NOBODY, RAW, "a search" },
    { "./shutdown-tests.sh", NOBODY, NOBODY, RAW, "a longer name" },
    { "npm run reboot", NOBODY, NOBODY, RAW, "somebody's script" },
    { "git init 0; systemctl status", NOBODY, NOBODY, RAW, "innocent neighbours" },

    /* 4. mkfs */
    { "mkfs /dev/vdb", "mkfs", "mkfs-device", WORDS, "the word" },
    { "mkfs.ext4 /dev/vdb1", "mkfs", "mkfs-device", WORDS, "with a type" },
    { "mkfs -t xfs disk.img", "mkfs", NOBODY, WORDS, "an image is a file like others" },
    { "/sbin/mkfs.xfs -f disk.img", "mkfs", NOBODY, WORDS, "path in front" },
    { "mke2fs x.img", "mkfs", NOBODY, WORDS, "the program behind it" },
    { "man mkfs", NOBODY, NOBODY, RAW, "reading about it" },
    { "ls mkfs.txt", NOBODY, NOBODY, RAW, "a file" },

    /* 5. the fork bomb */
    { ":(){ :|:& };:", "fork-bomb", "fork-bomb", RAW, "as everybody writes it" },
    { ": ( ) { : | : & } ; :", "fork-bomb", "fork-bomb", RAW, "with blanks" },
    { ":()\n{\n  :|:&\n};:", "fork-bomb", "fork-bomb", RAW, "over lines" },
    { "bash -c ':(){ :|:& };:'", "fork-bomb", "fork-bomb", RAW, "given to a shell" },
    { "bash -c $'\\x3a(){ :|:& };:'", "fork-bomb", "fork-bomb", RAW, "encoded" },
    { "bomb() { bomb | bomb & }; bomb", "fork-bomb-named", "fork-bomb", RAW, "another name" },
    { "f(){ f|f& };f", "fork-bomb-named", "fork-bomb", RAW, "a short one" },
    { "function : { :|:& };:", "fork-bomb", "fork-bomb", RAW, "by its keyword" },
    { ":()(:|:&);:", "fork-bomb", "fork-bomb", RAW, "a subshell as its body" },
    { ".(){ .|.& };.", "fork-bomb-named", "fork-bomb", RAW, "a name of signs" },
    { "function bomb { bomb & bomb & }; bomb", "fork-bomb-named", "fork-bomb", RAW,
      "without a pipe" },
    { "f() { g | h; }; f", NOBODY, NOBODY, RAW, "an ordinary function" },
    { "f() { f2 | f; }; x() { x-y & z; }", NOBODY, NOBODY, RAW, "names that only begin alike" },
    { "retry() { \"$@\" && return; sleep 1; }; retry make", NOBODY, NOBODY, RAW, "nor this" },
    { ": > file; while :; do sleep 1; done", NOBODY, NOBODY, RAW, "the ordinary uses of :" },

    /* 6. dd if= */
    { "dd if=/dev/zero of=x bs=1M count=1", "dd-if", NOBODY, WORDS, "harmless elsewhere" },
    { "dd of=x if=y", "dd-if", NOBODY, WORDS, "the other order" },
    { "d\"\"d i'f'=/dev/zero", "dd-if", NOBODY, WORDS, "disguised" },
    { "dd if=x of=/dev/nvme0n1", "dd-if", "dd-device", WORDS, "over a disk" },
    { "cat x | dd of=/dev/vda", NOBODY, "dd-device", WORDS,
      "without if=, the document does not mind" },
    { "dd --help; add if=x", NOBODY, NOBODY, RAW, "asking about it" },

    /* 7. /dev/sd */
    { "cat x > /dev/sda", "dev-sd", "write-device", WORDS, "a redirection" },
    { "cat x >/dev/s''da", "dev-sd", "write-device", WORDS, "disguised" },
    { "echo x | tee /dev/sdb1", "dev-sd", NOBODY, WORDS, "an argument" },
    { "mount /dev/sda1 /mnt", "dev-sd", NOBODY, WORDS, "any mention in a command's words" },
    { "cat //dev//sda", "dev-sd", NOBODY, WORDS, "more slashes" },
    { "cp x --target=/dev/sda", "dev-sd", NOBODY, WORDS, "in an option" },
    { "cat x > /dev/null 2>&1", NOBODY, NOBODY, RAW, "not a disk" },
    { "echo done >/dev/stdout", NOBODY, NOBODY, RAW, "not a disk either" },
    { "cat <<'E' > fstab\n/dev/sda1 / ext4\nE", NOBODY, NOBODY, RAW, "data in a heredoc" },
    { "ls /workspace/dev/sdk", NOBODY, NOBODY, RAW, "a folder of our own" },

    /* 8. chmod 777 */
    { "chmod 777 x", "chmod-777", NOBODY, WORDS, "the mode" },
    { "chmod -R 777 .", "chmod-777", NOBODY, WORDS, "-R" },
    { "chmod 0777 x", "chmod-777", NOBODY, WORDS, "0777" },
    { "chmod 4777 x", "chmod-777", NOBODY, WORDS, "and set-uid" },
    { "chmod a+rwx x", "chmod-777", NOBODY, WORDS, "a+rwx" },
    { "chmod a=rwx x", "chmod-777", NOBODY, WORDS, "a=rwx" },
    { "chmod ugo+rwx x", "chmod-777", NOBODY, WORDS, "ugo+rwx" },
    { "chmod --recursive 777 x", "chmod-777", NOBODY, WORDS, "a long option" },
    { "find . -type f -exec chmod 777 {} \\;", "chmod-777", NOBODY, WORDS, "by find" },
    { "chmod 755 x", NOBODY, NOBODY, RAW, "an ordinary mode" },
    { "chmod 1777 /tmp", NOBODY, NOBODY, RAW, "what /tmp has" },
    { "chmod u+rwx x", NOBODY, NOBODY, RAW, "for the owner" },
    { "chmod +x run.sh", NOBODY, NOBODY, RAW, "the everyday one" },
    { "chmod 644 file777", NOBODY, NOBODY, RAW, "a name with 777 in it" },

    /* ordinary work */
    { "npm list", NOBODY, NOBODY, RAW, "from the document" },
    { "node --version", NOBODY, NOBODY, RAW, "from the document" },
    { "npm install && npm run build", NOBODY, NOBODY, RAW, "from the document" },
    { "pwd", NOBODY, NOBODY, RAW, "from the document" },
    { "python3 -c 'print(\"rm -rf /\")'", NOBODY, NOBODY, RAW, "another language's string" },
    { "git clone https://example.org/x.git && cd x && make -j2", NOBODY, NOBODY, RAW, "a build" },
    { "find . -name '*.o' -delete", NOBODY, NOBODY, RAW, "find without -exec" },
    { "tar czf - src | ssh host 'cat > x'", NOBODY, NOBODY, RAW, "a pipe" },
    { "for f in *.c; do gcc -c \"$f\" || exit 1; done", NOBODY, NOBODY, RAW, "a loop" },
    { "sed -i 's/rm -rf/true/' Makefile", NOBODY, NOBODY, RAW, "editing" },
    { "", NOBODY, NOBODY, RAW, "nothing at all" },
};

static bool is_as_wanted(const struct policy_result *r, const char *rule, enum policy_form form)
{
    if (!rule)
        return !r->denied;
    return r->denied && strcmp(r->rule, rule) == 0 && r->form == form;
}

static int compare(const char *dialect, const struct policy *p, const char *text, const char *rule,
                   enum policy_form form, const char *because)
{
    struct policy_result r = check(p, dialect, text);

    if (is_as_wanted(&r, rule, form))
        return 0;
    print_error("%s: %s (%s): got %s on %s ('%s'), want %s\n", dialect, text, because,
                r.denied ? r.rule : "nothing", policy_form_name(r.form), r.matched,
                rule ? rule : "nothing");
    return 1;
}

static void the_default_policy_does_what_it_says(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    int wrong = 0;

    (void)state;
    assert_true(ARRAY_SIZE(cases) >= 150);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        wrong +=
            compare("execute", p, cases[i].text, cases[i].execute, cases[i].form, cases[i].because);
        wrong += compare("e2b", p, cases[i].text, cases[i].other, cases[i].form, cases[i].because);
    }
    assert_int_equal(wrong, 0);
    policy_free(p);
}

static void every_rule_of_the_default_policy_is_exercised(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");

    (void)state;
    for (size_t i = 0; i < policy_rule_count(p); i++) {
        struct policy_rule_info info;
        bool seen = false;

        policy_rule_get(p, i, &info);
        for (size_t k = 0; k < ARRAY_SIZE(cases); k++)
            seen |= (cases[k].execute && strcmp(cases[k].execute, info.name) == 0) ||
                    (cases[k].other && strcmp(cases[k].other, info.name) == 0);
        if (!seen)
            fail_msg("no command in the table is refused by rule '%s'", info.name);
    }
    policy_free(p);
}

static void settings_follow_the_dialect(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    struct policy_query execute = { .dialect = "execute" }, e2b = { .dialect = "e2b" };

    (void)state;
    assert_true(policy_exec_time(p, &execute));
    assert_false(policy_exec_time(p, &e2b));
    assert_string_equal(policy_profile(p, &execute), "default");
    assert_int_equal(strlen(policy_hash(p)), 64);
    policy_free(p);
}

/* --- exec time ------------------------------------------------------------------------------- */

static const struct {
    const char *argv[6];
    const char *rule;
    enum policy_form form;
    const char *because;
} execs[] = {
    { { "rm", "-rf", "/" }, "rm-rf", ARGV, "what base64 | sh starts in the end" },
    { { "/bin/rm", "-r", "-f", "x y" }, "rm-rf", ARGV, "by its path" },
    { { "sh", "-c", "rm -rf /" }, "rm-rf", ARGV, "what os.system() starts" },
    { { "sh", "-c", ":(){ :|:& };:" }, "fork-bomb", RAW, "a bomb that never gets to an execve" },
    { { "busybox", "rm", "-rf", "/" }, "rm-rf", ARGV, "busybox" },
    { { "echo", "rm", "-rf", "/" }, NOBODY, ARGV, "data" },
    { { "echo", "$(rm -rf /)" }, NOBODY, ARGV, "no shell reads this again" },
    { { "grep", ":(){", "x" }, NOBODY, ARGV, "nor this" },
    { { "rm", "-r", "a -f" }, "rm-rf", ARGV, "a blank in a word is a blank" },
    { { "rm", "-r", "a-f" }, NOBODY, ARGV, "a file's name may be strange" },
    { { NULL }, NOBODY, ARGV, "no argv at all" },
};

static void real_arguments_are_checked(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    struct policy_query q = { .dialect = "execute" };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(execs); i++) {
        struct policy_result r;
        size_t argc = 0;

        while (argc < 6 && execs[i].argv[argc])
            argc++;
        policy_check_argv(p, &q, execs[i].argv, argc, &r);
        if (!is_as_wanted(&r, execs[i].rule, execs[i].form))
            fail_msg("%s: got %s on %s", execs[i].because, r.denied ? r.rule : "nothing",
                     policy_form_name(r.form));
    }
    policy_free(p);
}

/* --- exceptions and scopes ------------------------------------------------------------------- */

static void exceptions_lift_one_rule_for_one_command(void **state)
{
    struct policy *p = compile("deny rm words /^rm -rf/ \"no\"\n"
                               "deny cp words /^cp/ \"no\"\n"
                               "deny secret raw /secret/ \"no\"\n"
                               "allow rm words /^rm -rf node_modules$/\n"
                               "allow * words /^cp a b$/\n");

    (void)state;
    assert_false(check(p, NULL, "rm -rf node_modules").denied);
    assert_true(check(p, NULL, "rm -rf node_modules; rm -rf /").denied);
    assert_true(check(p, NULL, "rm -rf node_modules /").denied);
    assert_false(check(p, NULL, "cp a b").denied);
    assert_true(check(p, NULL, "cp a c").denied);
    assert_true(check(p, NULL, "cp a b # secret").denied); /* another form, another rule */
    policy_free(p);
}

static void an_exception_lifts_no_other_rule_that_matches_the_same_command(void **state)
{
    struct policy *p = compile("deny rm words /^rm/ \"no\"\n"
                               "deny force words / -f/ \"no\"\n"
                               "allow rm words /^rm -f x$/\n");
    struct policy_result r = check(p, NULL, "rm -f x");

    (void)state;
    assert_true(r.denied);
    assert_string_equal(r.rule, "force");
    assert_string_equal(r.lifted, "rm");
    policy_free(p);
}

static void an_exception_holds_only_where_its_section_does(void **state)
{
    struct policy *p = compile("deny rm words /^rm/ \"no\"\n[e2b]\nallow rm words /^rm x$/\n");

    (void)state;
    assert_false(check(p, "e2b", "rm x").denied);
    assert_string_equal(check(p, "e2b", "rm x").lifted, "rm");
    assert_true(check(p, "execute", "rm x").denied);
    assert_string_equal(check(p, "execute", "rm x").lifted, "");
    policy_free(p);
}

static void sections_say_for_whom(void **state)
{
    static const struct {
        const char *dialect, *tenant, *template, *denied;
    } asks[] = {
        { "execute", "acme", "base", "a" },  { "e2b", "acme", "base", "b" },
        { "executor", "acme", "py-3", "b" }, { "e2b", "other", "base", NULL },
        { "relay", "x", "py-3", "c" },       { "relay", "x", "node", NULL },
        { "agent", "bad", "node", NULL },    { "agent", "good", "node", "d" },
        { NULL, NULL, NULL, NULL },
    };
    struct policy *p = compile("[execute]\ndeny a words /^x/ \"r\"\n"
                               "[dialect=executor,e2b tenant=acme template=*]\n"
                               "deny b words /^x/ \"r\"\n"
                               "[relay template=py-*]\ndeny c words /^x/ \"r\"\n"
                               "[dialect=agent tenant=!bad]\ndeny d words /^x/ \"r\"\n");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(asks); i++) {
        struct policy_query q = {
            asks[i].dialect, asks[i].tenant, asks[i].template, NULL, NULL, NULL
        };
        struct policy_result r;

        policy_check(p, &q, "x", 1, &r);
        if (!is_as_wanted(&r, asks[i].denied, WORDS))
            fail_msg("row %zu: got '%s'", i, r.rule);
    }
    policy_free(p);
}

static void later_settings_win(void **state)
{
    struct policy *p = compile("deny a words /^x/ \"r\"\nexec-time = on\nseccomp = build\n"
                               "[e2b]\nexec-time = off\nseccomp = strict\naudit = all\n");
    struct policy_query e2b = { .dialect = "e2b" }, any = { 0 };

    (void)state;
    assert_true(policy_exec_time(p, &any));
    assert_false(policy_exec_time(p, &e2b));
    assert_string_equal(policy_profile(p, &any), "build");
    assert_string_equal(policy_profile(p, &e2b), "strict");
    assert_false(policy_audit_all(p, &any));
    assert_true(policy_audit_all(p, &e2b));
    policy_free(p);
}

/* --- bounds ---------------------------------------------------------------------------------- */

/* Of this thread's work: a busy machine makes no pattern slower. */
static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct policy_result check_repeated(const char *policy, char c, size_t count)
{
    struct policy *p = compile(policy);
    char *text = malloc(count + 1);
    struct policy_result r;

    assert_non_null(text);
    memset(text, c, count);
    text[count] = '\0';
    r = check(p, "execute", text);
    free(text);
    policy_free(p);
    return r;
}

static void patterns_that_backtrack_are_cut_off(void **state)
{
    static const struct {
        const char *policy, *because;
        size_t count;
    } slow[] = {
        { "deny a raw /(a+)+\\d/ \"r\"\n", "exponential", 64 },
        { "deny a raw /^(a|a)*\\d/ \"r\"\n", "exponential, anchored", 64 },
        { "deny a raw /a.*a.*a.*b/ \"r\"\n", "a cube", 5000 },
        { "deny a raw /a[^b]*\\d/ \"r\"\n", "a square over a megabyte", 1024 * 1024 },
        { "deny a raw /(a+)+\\d/ \"r\"\n", "exponential and long", 5000 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
        double start = seconds();
        struct policy_result r = check_repeated(slow[i].policy, 'a', slow[i].count);

        if (seconds() - start > 5)
            fail_msg("%s: took %.1f s", slow[i].because, seconds() - start);
        /* either judged or refused, never let through for having been expensive */
        assert_true(!r.denied || r.form == LIMIT);
    }
    assert_int_equal(check_repeated(slow[0].policy, 'a', 64).form, LIMIT);
}

static void what_is_too_large_is_refused(void **state)
{
    static const char policy[] = "deny a words /^zzz/ \"r\"\n";

    (void)state;
    assert_false(check_repeated(policy, 'a', POLICY_COMMAND_MAX).denied);
    assert_int_equal(check_repeated(policy, 'a', POLICY_COMMAND_MAX + 1).form, LIMIT);
    assert_int_equal(check_repeated(policy, ';', POLICY_COMMAND_MAX).form, POLICY_FORM_NONE);
}

/* A bound must not hit honest work: a megabyte of names, for each rule that looks at all of them. */
static void long_argument_lists_are_judged(void **state)
{
    static const struct {
        const char *begin, *end, *rule;
    } rows[] = {
        { "rm -f ", "", NOBODY },
        { "rm -r ", "", NOBODY },
        { "rm -r ", "-f", "rm-rf" },
        { "chmod 644 ", "", NOBODY },
        { "dd ", "", NOBODY },
        { "dd ", "if=x", "dd-if" },
        { "systemctl ", "", NOBODY },
        { "tar cf x ", "", NOBODY },
        { "tar cf x ", "/dev/sda", "dev-sd" },
    };
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    char *text = malloc(POLICY_COMMAND_MAX + 1);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len = (size_t)sprintf(text, "%s", rows[i].begin);
        struct policy_result r;

        while (len + 16 < POLICY_COMMAND_MAX)
            len += (size_t)sprintf(text + len, "file.o ");
        strcpy(text + len, rows[i].end);
        r = check(p, "execute", text);
        if (!is_as_wanted(&r, rows[i].rule, WORDS))
            fail_msg("%s ... %s: %s on %s", rows[i].begin, rows[i].end, r.rule,
                     policy_form_name(r.form));
    }
    free(text);
    policy_free(p);
}

static void nesting_is_refused_not_followed(void **state)
{
    struct policy *p = compile("deny a words /^zzz/ \"r\"\n");
    char text[20001];
    struct policy_result r;

    (void)state;
    for (size_t i = 0; i < 10000; i++)
        memcpy(text + 2 * i, "$(", 3);
    r = check(p, "execute", text);
    assert_true(r.denied);
    assert_int_equal(r.form, LIMIT);
    assert_string_equal(r.rule, "limit");
    policy_free(p);
}

static struct policy_result check_all(const struct policy *p, const char *const *commands,
                                      size_t count, size_t *ret_at)
{
    struct policy_result r;

    *ret_at = policy_check_all(p, &(struct policy_query){ 0 }, commands, count, &r);
    return r;
}

static void a_request_is_refused_at_its_first_forbidden_command(void **state)
{
    static const char *const commands[] = { "ls", "touch x", "rm a", "touch y" };
    struct policy *p = compile("deny rm words /^rm/ \"r\"\n");
    size_t at;

    (void)state;
    assert_string_equal(check_all(p, commands, 4, &at).rule, "rm");
    assert_int_equal(at, 2);
    assert_false(check_all(p, commands, 2, &at).denied);
    assert_int_equal(at, 2);
    assert_false(check_all(p, commands, 0, &at).denied);
    policy_free(p);
}

/* Writes a line before the rules, which begin at 32. */
static const char *with_setting(char *policy, const char *setting)
{
    snprintf(policy, 32, "%-31s", setting);
    policy[31] = '\n';
    return policy;
}

/* 2000 commands of 1000 bytes, with 40 patterns that must look at every byte: each command is judged in
 * no time, all of them are not. */
static void fill_long_request(const char *commands[2000], char policy[4096])
{
    static char text[1001];
    char *rules = policy + 32;

    memset(text, 'a', 1000);
    for (size_t i = 0; i < 2000; i++)
        commands[i] = text;
    for (int i = 0, n = 0; i < 40; i++)
        n += sprintf(rules + n, "deny a%d raw /[a-c]*[^a-c]{%d}/ \"r\"\n", i, i + 2);
}

static bool left_at_the_third_look(void *looks)
{
    return ++*(int *)looks >= 3;
}

static void judging_stops_when_nobody_waits_for_the_verdict(void **state)
{
    const char *commands[2000];
    char policy[4096];
    int looks = 0;
    struct policy_query q = { .gone = left_at_the_third_look, .gone_arg = &looks };
    struct policy_result r;
    struct policy *p;

    (void)state;
    fill_long_request(commands, policy);
    p = compile(with_setting(policy, "max-time = 60s"));
    assert_true(policy_check_all(p, &q, commands, 2000, &r) < 2000);
    assert_true(r.denied);
    assert_true(r.gone);
    assert_int_equal(looks, 3);
    policy_free(p);
}

static void the_commands_of_a_request_share_one_bound(void **state)
{
    const char *commands[2000];
    struct policy_result r;
    char policy[4096];
    struct policy *p;
    size_t at;

    (void)state;
    fill_long_request(commands, policy);

    p = compile(with_setting(policy, "max-text = 50K"));
    r = check_all(p, commands, 2000, &at);
    assert_int_equal(at, 51); /* 51 of them have 51000 bytes, one more is too many */
    assert_int_equal(r.form, POLICY_FORM_LIMIT);
    assert_string_equal(r.rule, "max-text");
    assert_non_null(strstr(r.reason, "51200 bytes"));
    assert_false(check_all(p, commands, 5, &at).denied);
    policy_free(p);

    p = compile(with_setting(policy, "max-time = 10ms"));
    r = check_all(p, commands, 2000, &at);
    assert_true(at > 0 && at < 2000);
    assert_int_equal(r.form, POLICY_FORM_LIMIT);
    assert_string_equal(r.rule, "max-time");
    assert_non_null(strstr(r.reason, "10 ms"));
    policy_free(p);
}

static void bounds_hold_for_whom_their_section_says(void **state)
{
    struct policy *p = compile("deny x raw /x/ \"r\"\nmax-time = 20s\n[a]\nmax-text = 1K\n[b]\n"
                               "max-time = 100ms\n");
    struct policy_limits limits;

    (void)state;
    policy_get_limits(p, &(struct policy_query){ .dialect = "a" }, &limits);
    assert_int_equal(limits.text_bytes, 1024);
    assert_int_equal(limits.time_ms, 20000);
    policy_get_limits(p, &(struct policy_query){ .dialect = "b" }, &limits);
    assert_int_equal(limits.text_bytes, 2 * 1024 * 1024);
    assert_int_equal(limits.time_ms, 100);
    policy_free(p);
    p = compile("deny x raw /x/ \"r\"\n");
    policy_get_limits(p, &(struct policy_query){ 0 }, &limits);
    assert_int_equal(limits.time_ms, 500);
    policy_free(p);
}

/* Whatever two bytes follow a harmless command: it is judged, and that is no refusal. */
static void every_pair_of_bytes_is_judged(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    char text[] = "ls __ x";

    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        struct policy_result r;

        text[3] = (char)(i >> 8);
        text[4] = (char)i;
        policy_check(p, &(struct policy_query){ .dialect = "execute" }, text, sizeof(text) - 1, &r);
        if (r.denied)
            fail_msg("%02x %02x: %s on %s", i >> 8, i & 255, r.rule, r.matched);
    }
    policy_free(p);
}

/* Each of these left open to the end, with a forbidden command before it. */
static void what_is_never_closed_hides_nothing_before_it(void **state)
{
    static const char *const open[] = {
        "'",  "\"", "`",  "$(",  "${",   "$'", "\\",    "(",   "{",
        "<(", "((", "[[", "<<E", "case", "if", "f() {", "a=(", "$(("
    };
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(open); i++) {
        char text[64];

        snprintf(text, sizeof(text), "rm -rf / ; echo %s", open[i]);
        if (!check(p, "execute", text).denied)
            fail_msg("%s is allowed", text);
        snprintf(text, sizeof(text), "%s", open[i]);
        if (check(p, "execute", text).denied)
            fail_msg("%s alone is refused", text);
    }
    policy_free(p);
}

static void results_are_valid_text(void **state)
{
    struct policy *p = compile("deny a raw /x/ \"r\"\n");
    struct policy_result r;
    char text[1000];

    (void)state;
    memset(text, 0xff, sizeof(text));
    text[0] = 'x';
    text[1] = '\n';
    policy_check(p, &(struct policy_query){ 0 }, text, sizeof(text), &r);
    assert_true(r.denied);
    assert_memory_equal(r.matched, "x ???", 5);
    assert_string_equal(r.matched + strlen(r.matched) - 3, "...");
    policy_free(p);
}

/* --- many rules, many threads ---------------------------------------------------------------- */

/* Each of `count` rules refuses one word of its own. */
static char *many_rules(int count)
{
    char *text = malloc((size_t)count * 64 + 1), *at = text;

    assert_non_null(text);
    for (int i = 0; i < count; i++)
        at += sprintf(at, "deny r%d words /^tool%d( .*)? --force/ \"r\"\n", i, i);
    return text;
}

static void the_prefilter_loses_no_rule(void **state)
{
    AUTO_FREE char *text = many_rules(5000);
    struct policy *p = compile(text);

    (void)state;
    for (int i = 0; i < 5000; i += 7) {
        char command[64], rule[16];
        struct policy_result r;

        snprintf(command, sizeof(command), "tool%d a --force", i);
        snprintf(rule, sizeof(rule), "r%d", i);
        r = check(p, NULL, command);
        assert_string_equal(r.rule, rule);
    }
    assert_false(check(p, NULL, "tool5001 a --force").denied);
    policy_free(p);
}

static const struct {
    const char *pattern, *matches;
} literals[] = {
    { "a(?:b|c)*d", "ad" },
    { "abc?d", "abd" },
    { "abc*", "ab" },
    { "ab{0}cde", "acde" },
    { "x|abcdef", "x" },
    { "(?i)abc", "ABC" },
    { "[abc]def", "adef" },
    { "[]abc]def", "]def" },
    { "\\x41bc", "Abc" },
    { "a\\.bc", "a.bc" },
    { "(?=.*z)abc", "abcz" },
    { "a+bcd", "aabcd" },
    { "\\Qa.b\\E", "a.b" },
    { "abc|", "" },
    { "(abc)?", "" },
    { "x{{y\\dabc{", "x{{y1abc{" },
    { "ab{\\dcde", "ab{1cde" },
    { "ab\\d{2}cd", "ab12cd" },
    { "[[:alpha:]]bcd", "abcd" },
    { "a{2,}bc", "aabc" },
};

static void the_prefilter_understands_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(literals); i++) {
        char text[128];
        struct policy *p;

        snprintf(text, sizeof(text), "deny a raw /^(?:%s)/ \"r\"\ndeny b raw /%s/ \"r\"\n", "never",
                 literals[i].pattern);
        p = compile(text);
        if (!check(p, NULL, literals[i].matches).denied)
            fail_msg("/%s/ does not match '%s'", literals[i].pattern, literals[i].matches);
        policy_free(p);
    }
}

static void *check_often(void *arg)
{
    const struct policy *p = arg;
    intptr_t wrong = 0;

    for (int i = 0; i < 2000; i++) {
        wrong += !check(p, "execute", "cd x && rm -rf /").denied;
        wrong += check(p, "execute", "npm install && npm run build").denied;
    }
    return (void *)wrong;
}

static void threads_share_a_policy(void **state)
{
    struct policy *p = load(TEST_SRCDIR "/policy/policy.conf");
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, check_often, p), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *wrong;

        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    policy_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_policy_does_what_it_says),
        cmocka_unit_test(every_rule_of_the_default_policy_is_exercised),
        cmocka_unit_test(settings_follow_the_dialect),
        cmocka_unit_test(real_arguments_are_checked),
        cmocka_unit_test(exceptions_lift_one_rule_for_one_command),
        cmocka_unit_test(an_exception_lifts_no_other_rule_that_matches_the_same_command),
        cmocka_unit_test(an_exception_holds_only_where_its_section_does),
        cmocka_unit_test(sections_say_for_whom),
        cmocka_unit_test(later_settings_win),
        cmocka_unit_test(patterns_that_backtrack_are_cut_off),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(long_argument_lists_are_judged),
        cmocka_unit_test(nesting_is_refused_not_followed),
        cmocka_unit_test(a_request_is_refused_at_its_first_forbidden_command),
        cmocka_unit_test(judging_stops_when_nobody_waits_for_the_verdict),
        cmocka_unit_test(the_commands_of_a_request_share_one_bound),
        cmocka_unit_test(bounds_hold_for_whom_their_section_says),
        cmocka_unit_test(every_pair_of_bytes_is_judged),
        cmocka_unit_test(what_is_never_closed_hides_nothing_before_it),
        cmocka_unit_test(results_are_valid_text),
        cmocka_unit_test(the_prefilter_loses_no_rule),
        cmocka_unit_test(the_prefilter_understands_patterns),
        cmocka_unit_test(threads_share_a_policy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
