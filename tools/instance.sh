# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# An instance and its files: settings, directories, keys, certificates, the configuration of coved and nginx.

readonly WORKER_UID=61170 # a number without a passwd entry: making users would touch /etc

name_instance() { # fills dir, run, id and all that follows from them
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd -P)
    id=$(printf '%s\n%s\n' "$top" "$dir" | sha256sum | cut -c 1-8)
    run=/run/cove-$id
    memory=/dev/shm/cove-$id # what nginx keeps in memory
    cgroup=cove-$id
    conf=$dir/conf
    log=$dir/log
}

# Flags of an earlier `up` stay in use until `down`; flags that are given now override them.
load_settings() {
    local line
    [ -e "$dir/settings" ] || return 0
    while IFS= read -r line; do
        case $line in
        http=*) http_port=${http_port:-${line#*=}} ;;
        https=*) https_port=${https_port:-${line#*=}} ;;
        domain=*) domain=${domain:-${line#*=}} ;;
        set=*) earlier_sets+=("${line#*=}") ;;
        esac
    done <"$dir/settings"
}

save_settings() {
    local pair
    {
        printf 'http=%s\nhttps=%s\ndomain=%s\n' "$http_port" "$https_port" "$domain"
        for pair in ${sets[@]+"${sets[@]}"}; do printf 'set=%s\n' "$pair"; done
    } >"$dir/settings"
}

merge_sets() { # the last value of a key wins
    local pair key
    local -A seen=()
    local merged=()
    local all=(${earlier_sets[@]+"${earlier_sets[@]}"} ${sets[@]+"${sets[@]}"})
    local i
    for ((i = ${#all[@]} - 1; i >= 0; i--)); do
        pair=${all[i]}
        key=${pair%%=*}
        [ -z "${seen[$key]:-}" ] || continue
        seen[$key]=1
        merged=("$pair" ${merged[@]+"${merged[@]}"})
    done
    sets=(${merged[@]+"${merged[@]}"})
}

setting() { # setting KEY DEFAULT: what --set says
    local pair
    for pair in ${sets[@]+"${sets[@]}"}; do
        [ "${pair%%=*}" != "$1" ] || { printf '%s' "${pair#*=}"; return; }
    done
    printf '%s' "$2"
}

check_port() {
    case $2 in '' | *[!0-9]*) die "$1: '$2' is not a port number." ;; esac
    if [ "$2" -lt 1 ] || [ "$2" -gt 65535 ]; then die "$1: $2 is not a port number (1 to 65535)."; fi
}

make_dirs() {
    mkdir -p "$conf" "$log" "$dir/tls" "$dir/state" "$run" "$run/nginx"
    mkdir -m 755 "$memory" 2>/dev/null || true # everybody may write to /dev/shm: auth_zone looks whose it is
    chmod 755 "$run" "$run/nginx"
    chmod 700 "$conf" "$dir/tls" "$log"
    chmod 711 "$dir/state"
}

make_key() {
    local key
    [ ! -s "$conf/key" ] || [ ! -s "$conf/keys" ] || return 0
    (umask 077
        rm -f "$conf/keys"
        key=$("$inst/bin/cove" key create default --name quickstart --file "$conf/keys" 2>/dev/null) ||
            die "cove key create could not write $conf/keys."
        printf '%s\n' "$key" >"$conf/key")
}

# The user who started the instance gets the signing key for the console's Operator page.
make_operator() {
    [ ! -s "$conf/operator" ] || return 0
    (umask 077
        "$inst/bin/cove" -c "$conf/cove.conf" operator add quickstart >"$conf/operator" 2>/dev/null ||
            die "cove operator add could not write $conf/operators.")
}

# The policy is copied once: from then on the operator edits it, and it is never overwritten.
make_policy() {
    [ -s "$conf/policy.conf" ] || cp "$inst/etc/cove/policy.conf" "$conf/policy.conf"
}

make_certificate() {
    cert=$dir/tls/$domain.crt
    cert_key=$dir/tls/$domain.key
    [ ! -s "$cert" ] || [ ! -s "$cert_key" ] || return 0
    (umask 077
        run_logged certificate openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 825 \
            -subj "/CN=$domain" -addext "subjectAltName=DNS:$domain,DNS:*.$domain,IP:127.0.0.1" \
            -keyout "$cert_key" -out "$cert") || die "openssl could not make a certificate (above)."
    chmod 644 "$cert"
}

# replace FILE: standard input becomes FILE; true if that changed it
replace() {
    cat >"$1.new"
    if cmp -s "$1" "$1.new"; then
        rm -f "$1.new"
        return 1
    fi
    mv "$1.new" "$1"
}

# The instance in a checkout's .cove has 3031, as documented; one made with --dir has a block of its own, the same one each time.
print_proxy_ports() {
    local first=$((20000 + 16#${id:0:4} % 600 * 65))
    [ "$dir" != "$top/.cove" ] || return 0
    printf 'proxy_port = %d\nproxy_range_first = %d\nproxy_range_last = %d\n' "$first" $((first + 1)) $((first + 64))
}

print_cove_conf() {
    local pair
    cat <<END
# Made by quickstart: what differs from the defaults (conf/cove.conf explains every key).
run_dir = $run
state_dir = $dir/state
keys_file = $conf/keys
operators_file = $conf/operators
tenants_file = $conf/tenants
templates_file = $conf/templates
policy_file = $conf/policy.conf
profile_dir = $inst/share/cove/profiles
audit_file = $dir/log/audit.log
libexec_dir = $inst/libexec/cove
cgroup = $cgroup
worker_user = $WORKER_UID
END
    print_proxy_ports
    for pair in ${sets[@]+"${sets[@]}"}; do printf '%s = %s\n' "${pair%%=*}" "${pair#*=}"; done
}

# nginx's limit on bodies is a little above the workers', so that a worker refuses the body and says which limit it was.
nginx_body_max() {
    local size
    size=$(setting body_max 8M)
    case $size in
    *K | *KiB) size=$((${size%%K*} / 1024)) ;;
    *M | *MiB) size=${size%%M*} ;;
    *G | *GiB) size=$((${size%%G*} * 1024)) ;;
    *) size=$((size / 1048576)) ;;
    esac
    printf '%dm' $((size + 1))
}

# nginx remembers whose a key is only in memory that no other user can read.
auth_zone() {
    if [ ! -L "$memory" ] && [ "$(stat -c %u "$memory")" = 0 ] && [ "$(stat -f -c %T "$memory")" = tmpfs ]; then
        echo cove_auth
    else
        echo off
    fi
}

fill_template() {
    sed -e "s|@HTTP_LISTEN@|127.0.0.1:$http_port|" -e "s|@HTTP_DEFAULT@|default_server|" \
        -e "s|@HTTPS_LISTEN@|127.0.0.1:$https_port|" \
        -e "s|@RUN_DIR@|$run|g" -e "s|@DOMAIN@|$domain|g" -e "s|@CERT@|$cert|" -e "s|@CERT_KEY@|$cert_key|" \
        -e "s|@LOG_DIR@|$log|g" -e "s|@BODY_MAX@|$(nginx_body_max)|" -e "s|@SITE@|$conf/nginx-cove.conf|" \
        -e "s|@SNIPPETS@|$conf/snippets|g" -e "s|@ACME_DIR@|$dir/acme|g" -e "s|@HSTS@||" \
        -e "s|@AUTH_CACHE@|$memory/auth|" -e "s|@AUTH_ZONE@|$(auth_zone)|" -e "s|@WEB_DIR@|$run/web|g" \
        -e "s|@MCP_PORT@|$(setting agent_mcp_port 6060)|" -e "s|@ADDRESS_RATE@|100000|g" -e "s|@ADDRESS_CONNECTIONS@|10000|" "$1"
}

# nginx's own user reads the console's pages, and the checkout may be closed to that user.
copy_web() {
    rm -rf "$run/web.new"
    cp -r "$inst/share/cove/web" "$run/web.new"
    chmod -R u=rwX,go=rX "$run/web.new"
    rm -rf "$run/web"
    mv "$run/web.new" "$run/web"
}

write_nginx_conf() { # true if something changed
    local changed=1 file
    copy_web
    mkdir -p "$conf/snippets"
    for file in "$nginx_dir"/snippets/*.conf; do
        fill_template "$file" | replace "$conf/snippets/${file##*/}" && changed=0
    done
    fill_template "$nginx_dir/cove.conf" | replace "$conf/nginx-cove.conf" && changed=0
    fill_template "$nginx_dir/nginx-private.conf" | replace "$conf/nginx.conf" && changed=0
    return $changed
}

# Settings and policy are checked before anything that runs is touched.
check_settings() {
    local checked=$conf/cove.conf.checked policy
    policy=$(setting policy_file "$conf/policy.conf")
    print_cove_conf >"$checked"
    if "$inst/sbin/coved" --check -c "$checked" >"$log/check.log" 2>&1 &&
        "$inst/bin/cove" policy check "$policy" >"$log/check.log" 2>&1; then
        rm -f "$checked"
        return
    fi
    sed "s|$checked|cove.conf|" "$log/check.log" >&2
    rm -f "$checked"
    die "coved would not take these settings (above): nothing was changed, what ran before still runs."
}

print_env() {
    local completion=$inst/share/bash-completion/completions/cove
    cat <<END
# . this file: \`cove\`, its manual pages and its completion are then about this instance.
export COVE_URL=http://127.0.0.1:$http_port
export COVE_TLS_URL=https://127.0.0.1:$https_port
export COVE_KEY=$(cat "$conf/key")
export COVE_DOMAIN=$domain
export COVE_CONFIG=$(printf %q "$conf/cove.conf")
case ":\$PATH:" in *:$(printf %q "$inst/bin"):*) ;; *) export PATH=$(printf %q "$inst/bin:$inst/sbin"):"\$PATH" ;; esac
case ":\${MANPATH:-}:" in *:$(printf %q "$inst/share/man"):*) ;; *) export MANPATH=$(printf %q "$inst/share/man"):"\${MANPATH:-}" ;; esac
if [ -n "\${BASH_VERSION:-}" ] && [ -r $(printf %q "$completion") ]; then . $(printf %q "$completion"); fi
END
}

write_env() {
    (umask 077; print_env | replace "$dir/env" || true)
}
