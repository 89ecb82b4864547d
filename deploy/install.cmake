# What `cmake --install` puts where, and the Debian package that `cpack` makes of it.
#
# Everything goes below the prefix but the configuration: /etc/thermocline where the prefix is /usr or /usr/local. A
# configuration that is there already stays as it is.
include(GNUInstallDirs)
option(THERMOCLINE_PORTABLE "Install shared libraries that other systems may lack beside the programs" OFF)

foreach(target thermocline thermoclined thermocline-load)
  if(TARGET ${target})
    install(TARGETS ${target} RUNTIME)
    if(THERMOCLINE_PORTABLE)
      # RPATH and not RUNPATH, so that it also holds for what the libraries need.
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/thermocline")
      target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
    endif()
  endif()
endforeach()
install(FILES config/models/tidepool.gguf config/models/tidepool.gguf.tcp config/models/tidepool-draft.gguf
  config/models/tidepool-experts.gguf
  DESTINATION ${CMAKE_INSTALL_DATADIR}/thermocline/models)
install(DIRECTORY config/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/thermocline)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN papers EXCLUDE)
install(FILES deploy/systemd/cuda.conf deploy/systemd/jetson.conf DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/systemd)
install(DIRECTORY deploy/haproxy deploy/envoy deploy/kubernetes deploy/grafana deploy/prometheus
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples PATTERN "*.py" EXCLUDE)
# compose.yaml and what it mounts stay behind, because it builds an image from the repository.
install(FILES examples/README.md examples/chat.py examples/structured_output.py examples/tools.py examples/embeddings.py
  examples/grpc_chat.py examples/batch.jsonl DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(PROGRAMS examples/chat.sh DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
install(DIRECTORY proto/thermocline DESTINATION ${CMAKE_INSTALL_DOCDIR}/proto FILES_MATCHING PATTERN "*.proto")
install(FILES deploy/completion/thermocline.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME thermocline)
foreach(program thermoclined thermocline-load)
  install(CODE "file(CREATE_LINK thermocline \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions/${program}\" SYMBOLIC)")
endforeach()

install(CODE "set(source \"${CMAKE_SOURCE_DIR}\")
set(binaries \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}\")
set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(portable \"${THERMOCLINE_PORTABLE}\")
set(system_root \"${CMAKE_SYSROOT}\")")
install(SCRIPT deploy/install_generated.cmake)

# The package. Depends is what dpkg-shlibdeps reads of the programs, so it fits the system that they were built on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME thermocline)
set(CPACK_PACKAGE_VENDOR Thermocline)
set(CPACK_PACKAGE_CONTACT "Thermocline developers <thermocline@packages.thermocline.dev>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves one language model with low latency")
set(CPACK_PACKAGE_DESCRIPTION "Thermocline is a daemon that serves one language model on one machine over
OpenAI's HTTP API and gRPC, with Prometheus metrics. It computes only the
neurons that a token needs, keeps the rest in memory or on flash, and drafts
ahead while the model verifies. The package holds the daemon, the command
line and a small built-in model.")
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(THERMOCLINE_PORTABLE)
  # What Ubuntu 22.04 and JetPack 6 have, and all newer systems of Debian's family.
  set(CPACK_DEBIAN_PACKAGE_VERSION ${PROJECT_VERSION}+portable)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.35), libgcc-s1, libstdc++6 (>= 12), libsystemd0")
elseif(CMAKE_CROSSCOMPILING)
  set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/cpack_project.cmake)
else()
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
# Read by deploy/cpack_project.cmake; cpack passes on what begins with CPACK_ alone.
file(WRITE ${CMAKE_BINARY_DIR}/cpack_project.cmake "set(THERMOCLINE_CROSS_ROOT \"${CMAKE_SYSROOT}\")
set(THERMOCLINE_PROGRAMS \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}\")
set(THERMOCLINE_SOURCE \"${CMAKE_SOURCE_DIR}\")
include(\"${CMAKE_SOURCE_DIR}/deploy/cpack_project.cmake\")
")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
