# Read by cpack before it makes the package: Depends of programs that dpkg-shlibdeps cannot read here.
if(THERMOCLINE_CROSS_ROOT)
  file(GLOB programs "${THERMOCLINE_PROGRAMS}/thermocline*")
  execute_process(COMMAND "${THERMOCLINE_SOURCE}/deploy/depends.sh" "${THERMOCLINE_CROSS_ROOT}" ${programs}
    OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_DEPENDS OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
