# Files of an installation that depend on where it goes, or that the programs write themselves: units, configuration,
# man pages. Run by `cmake --install` and cpack, with `source`, `binaries`, `emulator`,
# `portable` and `system_root` set.
set(root "$ENV{DESTDIR}")
set(prefix "${CMAKE_INSTALL_PREFIX}")
if(prefix STREQUAL "/usr" OR prefix STREQUAL "/usr/local")
  set(etc /etc/thermocline)
else()
  set(etc "${prefix}/etc/thermocline")
endif()
if(prefix STREQUAL "/usr")
  set(units /lib/systemd/system)
else()
  set(units "${prefix}/lib/systemd/system")
endif()

foreach(unit thermocline.service thermocline.socket)
  file(READ "${source}/deploy/systemd/${unit}" text)
  string(REPLACE /usr/local/bin/ "${prefix}/bin/" text "${text}")
  string(REPLACE /usr/local/share/ "${prefix}/share/" text "${text}")
  string(REPLACE /etc/thermocline/ "${etc}/" text "${text}")
  message(STATUS "Installing: ${root}${units}/${unit}")
  file(WRITE "${root}${units}/${unit}" "${text}")
endforeach()

if(EXISTS "${root}${etc}/thermocline.yaml")
  message(STATUS "Kept: ${root}${etc}/thermocline.yaml")
else()
  file(INSTALL "${source}/config/thermocline.yaml" DESTINATION "${etc}")  # file(INSTALL) adds DESTDIR itself
endif()

if(portable)
  file(GLOB programs "${root}${prefix}/bin/thermocline*")
  execute_process(COMMAND "${source}/deploy/bundle_libraries.sh" "${system_root}" "${root}${prefix}/lib/thermocline" ${programs}
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT system_root)
    set(system_root /)
  endif()
  execute_process(COMMAND python3 -B "${source}/deploy/release/notices.py" "${root}${prefix}/lib/thermocline"
    "${root}${prefix}/share/thermocline/licences" "${system_root}" COMMAND_ERROR_IS_FATAL ANY)
endif()

find_program(HELP2MAN help2man)
if(HELP2MAN)
  execute_process(COMMAND "${source}/deploy/man_pages.sh" "${binaries}" "${root}${prefix}/share/man/man1" ${emulator} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "deploy/man_pages.sh failed")
  endif()
elseif(root)
  message(FATAL_ERROR "a package needs help2man for its man pages: apt-get install help2man")
else()
  message(STATUS "help2man is not installed: no man pages")
endif()

set(doc "${prefix}/share/doc/thermocline")
file(INSTALL "${source}/deploy/debian/copyright" DESTINATION "${doc}")
if(root)
  execute_process(COMMAND gzip -9nc "${source}/deploy/debian/changelog" OUTPUT_FILE "${root}${doc}/changelog.gz")
endif()
