#!/bin/sh
# Installs the programs of a release, or removes them. It needs no compiler.
#   install.sh ADDRESS [--prefix DIR]       ADDRESS: the release's address (https:// or file://) or its folder
#   install.sh --remove [--prefix DIR]
# DIR is /usr/local for root, ~/.local for others. Files go to DIR/lib/thermocline-release, with links in DIR/bin. Whenever it is
# interrupted, DIR has the former installation or the new one.
set -eu

fail() {
  echo "install.sh: $1" >&2
  exit 1
}
usage() {
  echo "usage: install.sh ADDRESS [--prefix DIR] | install.sh --remove [--prefix DIR]" >&2
  exit 2
}

address='' prefix='' remove=''
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -gt 1 ] || usage; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --remove) remove=yes ;;
    -*) usage ;;
    *) [ -z "$address" ] || usage; address=${1%/} ;;
  esac
  shift
done
if [ -z "$prefix" ]; then
  if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:?install.sh: HOME is not set: give --prefix DIR}/.local; fi
fi
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
prefix=${prefix%/}
home=$prefix/lib/thermocline-release
programs='thermocline thermoclined thermocline-load'
# Root's installation has its configuration where a package would have it.
etc=$prefix/etc/thermocline
case $prefix in /usr | /usr/local) etc=/etc/thermocline ;; esac

# Succeeds if the path is a link into our folder.
ours() {
  case $(readlink "$1" 2>/dev/null || true) in *lib/thermocline-release/current/*) return 0 ;; esac
  return 1
}

# Folders that get links to the release's files of the same folder.
linked_folders='bin share/man/man1 share/bash-completion/completions'
# Prints the links that are there.
each_link() {
  for folder in $linked_folders; do
    for link in "$prefix/$folder"/thermocline*; do
      if ours "$link"; then echo "$link"; fi
    done
  done
}

if [ -n "$remove" ]; then
  [ -z "$address" ] || usage
  [ -d "$home" ] || fail "there is no $home: nothing to remove (--prefix DIR, if it was installed with it)"
  each_link | while IFS= read -r link; do rm -f "$link"; done
  unit=$prefix/lib/systemd/system/thermocline.service
  if [ -e "$unit" ] && grep -q '^# Installed by install.sh$' "$unit"; then rm -f "$unit"; fi
  rm -rf "$home"
  echo "removed from $prefix"
  if [ -e "$etc" ]; then echo "your configuration stays: $etc"; fi
  exit 0
fi
[ -n "$address" ] || usage

# The machine.
[ "$(uname -s)" = Linux ] || fail "this is $(uname -s); the programs run on Linux"
machine=$(uname -m)
case $machine in arm64) machine=aarch64 ;; esac
if [ "$(getconf LONG_BIT 2>/dev/null || echo 64)" = 32 ]; then
  fail "this system has 32 bits on a processor of $machine; the programs need a 64-bit system"
fi

for program in $programs; do
  if [ -e "$prefix/bin/$program" ] || [ -L "$prefix/bin/$program" ]; then
    ours "$prefix/bin/$program" || fail "$prefix/bin/$program is there and is not of a release: remove it, or give --prefix DIR"
  fi
done

# The files.
local_folder=''
case $address in
  https://* | http://127.0.0.1:* | http://localhost:*) ;;
  http://*) fail "$address: not over http, where anybody on the way can change the files; give an https:// address" ;;
  file://*) local_folder=${address#file://} ;;
  *://*) fail "$address: an address begins with https:// or file://" ;;
  *) local_folder=$address ;;
esac
fetch() { # NAME FILE
  if [ -n "$local_folder" ]; then
    [ -e "$local_folder/$1" ] || fail "there is no $local_folder/$1: is it the folder of a release?"
    cp "$local_folder/$1" "$2"
  elif command -v curl >/dev/null 2>&1; then
    curl -fsSL "$address/$1" -o "$2" || fail "$address/$1 cannot be downloaded, see above"
  elif command -v wget >/dev/null 2>&1; then
    wget -q "$address/$1" -O "$2" || fail "$address/$1 cannot be downloaded with wget (exit code $?)"
  else
    fail "there is neither curl nor wget: install one of them"
  fi
}
for tool in sha256sum tar xz; do
  command -v $tool >/dev/null 2>&1 || fail "$tool is missing: install it (Debian, Ubuntu: apt-get install coreutils tar xz-utils)"
done

work=$(mktemp -d)
new=''
clean_up() {
  rm -rf "$work"
  if [ -n "$new" ]; then rm -rf "$new"; fi
  rmdir "$home" "$prefix/lib" 2>/dev/null || true # where they are empty
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fetch SHA256SUMS "$work/SHA256SUMS"
archive=$(sed -nE "s/^[0-9a-f]{64}  (thermocline-[0-9][0-9A-Za-z.+~-]*-linux-$machine\.tar\.xz)\$/\1/p" "$work/SHA256SUMS")
[ -n "$archive" ] || fail "the release has no programs for this machine, which is $machine; it has: $(sed -nE 's/.*-linux-(.*)\.tar\.xz$/\1/p' "$work/SHA256SUMS" | tr '\n' ' ')"
[ "$(echo "$archive" | wc -l)" -eq 1 ] || fail "SHA256SUMS names several archives for $machine: $archive"
fetch "$archive" "$work/$archive"
expected=$(sed -n "s/^\([0-9a-f]*\)  $archive\$/\1/p" "$work/SHA256SUMS")
actual=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
[ "$expected" = "$actual" ] || fail "$archive has the SHA-256 sum $actual, but SHA256SUMS says $expected: it is damaged or not the release's; nothing was installed"

mkdir -p "$home" || fail "$home cannot be made: run it as root, or give --prefix DIR of a folder of your own"
name=${archive%.tar.xz}
identity=${name#thermocline-}-$(printf %.12s "$actual")
rm -rf "$home"/.new.* "$home"/.current.* # left by a run that was killed
if [ ! -d "$home/$identity" ]; then
  new=$home/.new.$$
  mkdir "$new"
  xz -dc "$work/$archive" | tar -xf - -C "$new"
  tree=$new/$name

  # The C library, told from the programs' own requirements.
  needs=$(sed -n 's/^glibc //p' "$tree/share/thermocline/requirements")
  has=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
  [ -n "$has" ] || fail "this system has no glibc (Alpine has musl); the programs need glibc $needs or newer: use the image of the release"
  older=$(printf '%s\n%s\n' "$needs" "$has" | sort -t . -k 1,1n -k 2,2n | head -n 1)
  [ "$older" = "$needs" ] || fail "this system has glibc $has; the programs need glibc $needs or newer (Ubuntu 22.04, Debian 12, Fedora 36): use the image of the release, or build from source"
  for program in $programs; do
    "$tree/bin/$program" --version >/dev/null 2>"$work/error" ||
      fail "$program does not start on this system; it needs libstdc++ 12 and libsystemd besides glibc $needs: $(head -n 3 "$work/error")"
  done
  mv "$tree" "$home/$identity"
fi

# The one step that counts: a link replaced at once.
ln -sfn "$identity" "$home/.current.$$"
mv -Tf "$home/.current.$$" "$home/current"
for old in "$home"/*; do
  case $old in */"$identity" | */current) ;; *) rm -rf "$old" ;; esac
done
for folder in $linked_folders; do
  mkdir -p "$prefix/$folder"
  up=$(echo "$folder" | sed 's:[^/]*:..:g')
  for file in "$home/current/$folder"/thermocline*; do
    [ -e "$file" ] || continue
    link=$prefix/$folder/${file##*/}
    if [ ! -e "$link" ] && [ ! -L "$link" ] || ours "$link"; then
      ln -sfn "$up/lib/thermocline-release/current/$folder/${file##*/}" "$link"
    fi
  done
done
# Pages of commands that this version does not have.
each_link | while IFS= read -r link; do
  [ -e "$link" ] || rm -f "$link"
done
if [ ! -e "$etc/thermocline.yaml" ]; then
  mkdir -p "$etc"
  cp "$home/current/etc/thermocline/thermocline.yaml" "$etc/thermocline.yaml"
fi
service=''
unit=$prefix/lib/systemd/system/thermocline.service
if [ "$prefix" = /usr/local ] && command -v systemctl >/dev/null 2>&1; then
  if [ ! -e "$unit" ] || grep -q '^# Installed by install.sh$' "$unit"; then
    mkdir -p "${unit%/*}"
    { echo '# Installed by install.sh'; cat "$home/current/lib/systemd/system/thermocline.service"; } >"$unit.new"
    mv "$unit.new" "$unit"
    service=yes
  fi
fi

echo "installed $name in $prefix"
case :$PATH: in *":$prefix/bin:"*) command=thermoclined ;; *) command=$prefix/bin/thermoclined ;; esac
echo "start:          $command --config $etc/thermocline.yaml     # http://127.0.0.1:8080/"
if [ -n "$service" ]; then echo "as a service:   systemctl daemon-reload && systemctl enable --now thermocline"; fi
echo "your model:     $command --set model.path=MODEL.gguf"
echo "remove:         sh $home/current/install.sh --remove --prefix $prefix"
