# `cmake --install build --prefix P`: the command, the library with its header, what pkg-config and CMake need
# to find it, and the CPU plugin in lib/ttt, where both command and library look for it. Manual pages and
# completion, docs and examples. `cpack` in the build folder makes a Debian package of the same.
include(CMakePackageConfigHelpers)
set(TTT_INSTALL_PLUGINS "" CACHE STRING "Further plugins (libtpu.so, xla_cuda_plugin.so) to install beside the CPU's")
option(TTT_INSTALL_XLA "Install XLA's libraries (850 MB) beside the CPU plugin, for machines without set-up" OFF)

install(TARGETS ttt RUNTIME DESTINATION bin)
target_include_directories(ttt_library INTERFACE $<INSTALL_INTERFACE:include>)
install(TARGETS ttt_library EXPORT tttTargets LIBRARY DESTINATION lib)
install(FILES runtime/ttt.h DESTINATION include)
install(PROGRAMS ${ttt_cpu_plugin} ${TTT_INSTALL_PLUGINS} DESTINATION lib/ttt)
if(TTT_INSTALL_XLA)
  install(FILES ${TTT_TENSORFLOW_DIR}/libtensorflow_cc.so.2 ${TTT_TENSORFLOW_DIR}/libtensorflow_framework.so.2
          DESTINATION lib/ttt)
endif()

set(install_files ${CMAKE_CURRENT_LIST_DIR})
set(package_folder lib/cmake/ttt)
install(EXPORT tttTargets NAMESPACE ttt:: DESTINATION ${package_folder})
configure_package_config_file(${install_files}/tttConfig.cmake.in ${PROJECT_BINARY_DIR}/tttConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tttConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tttConfig.cmake ${PROJECT_BINARY_DIR}/tttConfigVersion.cmake
        DESTINATION ${package_folder})
configure_file(${install_files}/ttt.pc.in ${PROJECT_BINARY_DIR}/ttt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ttt.pc DESTINATION lib/pkgconfig)

if(NOT TTT_SANITIZE) # see tools/CMakeLists.txt
  set(help_folder ${PROJECT_BINARY_DIR}/help)
  install(DIRECTORY ${help_folder}/man1 DESTINATION share/man)
  install(FILES ${help_folder}/completions/ttt DESTINATION share/bash-completion/completions)
  # zsh looks into the first below /usr/local, Debian's below /usr into the second.
  install(FILES ${help_folder}/completions/_ttt DESTINATION share/zsh/site-functions)
  install(FILES ${help_folder}/completions/_ttt DESTINATION share/zsh/vendor-completions)
  install(FILES ${help_folder}/completions/ttt.fish DESTINATION share/fish/vendor_completions.d)
endif()
install(PROGRAMS tools/dev/corpus.sh DESTINATION share/ttt) # for ttt reproduce
install(FILES README.md DESTINATION share/doc/ttt)
install(DIRECTORY docs/ DESTINATION share/doc/ttt/docs FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples/ tools/examples/ DESTINATION share/doc/ttt/examples)

# ---- cpack: ttt_VERSION_ARCHITECTURE.deb -------------------------------------------------------------
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ttt)
set(CPACK_PACKAGE_CONTACT "The ttt project <ttt@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "test-time-training language models in C")
set(CPACK_PACKAGE_DESCRIPTION
    "Trains, runs and exports test-time-training language models (TTT-Linear, TTT-MLP). One program that writes
StableHLO itself and compiles it through PJRT plugins for TPUs, GPUs and CPUs, and libttt for other programs.
.
The CPU plugin is part of the package. It needs the libraries of the tensorflow-cpu wheel that it was built with:
beside it in /usr/lib/ttt, or where they were on the machine that built the package.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)       # what the programs and libraries need, by dpkg-shlibdeps
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # who needs libttt.so.0, needs this package; ldconfig is run
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
include(CPack)
